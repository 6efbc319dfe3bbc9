// The table of runs: heads sort, the filter keeps rows. Without a script it is read as it stands.
const table = document.querySelector(".runs table");
const body = table.tBodies[0];
const heads = [...table.tHead.rows[0].cells];
const names = heads.map((head) => head.textContent.trim().toLowerCase());
const input = document.querySelector(".filter input");
const count = document.querySelector(".filter output");
const rows = [...body.rows];
const key = (row, column) => row.cells[column].dataset.key;

// Numbers by value, words by letter; numbers first, and cells without a value last.
const compare = (a, b) => {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [Number(a), Number(b)];
  if (Number.isNaN(x) || Number.isNaN(y)) {
    return Number.isNaN(x) - Number.isNaN(y) || a.localeCompare(b);
  }
  return x - y;
};

const sort = (column) => {
  const down = heads[column].getAttribute("aria-sort") === "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  const order = (a, b) => {
    const [x, y] = [key(a, column), key(b, column)];
    const turned = x !== "" && y !== "" && down ? -1 : 1; // no value stays last
    return turned * compare(x, y);
  };
  rows.sort(order);
  body.append(...rows);
};

const tests = {
  ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, "!=": (a, b) => a !== b,
  ">": (a, b) => a > b, "<": (a, b) => a < b, "=": (a, b) => a === b,
};

// What a word of the filter asks of a row.
const condition = (word) => {
  const parts = word.match(/^(.+?)(>=|<=|!=|>|<|=)(.+)$/);
  const column = parts ? names.findIndex((name) => name.startsWith(parts[1])) : -1;
  if (column < 0) return (row) => row.textContent.toLowerCase().includes(word);
  const [test, wanted] = [tests[parts[2]], parts[3]];
  return (row) => {
    const value = key(row, column).toLowerCase();
    if (value === "") return false;
    const numbers = [Number(value), Number(wanted)];
    return numbers.some(Number.isNaN) ? test(value, wanted) : test(...numbers);
  };
};

const filter = () => {
  const conditions = input.value.toLowerCase().split(/\s+/).filter(Boolean).map(condition);
  for (const row of rows) row.hidden = !conditions.every((holds) => holds(row));
  const left = rows.filter((row) => !row.hidden).length;
  count.textContent = conditions.length ? `${left} of ${rows.length} runs` : "";
};

heads.forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => sort(column));
});
input.addEventListener("input", filter);
