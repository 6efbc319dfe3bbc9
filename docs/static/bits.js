"use strict";
// The bits of a number in every format, its neighbours, and its rounding in every mode: exact, in
// whole numbers, by the definitions of the page on semantics. FORMATS comes from formats.js.

const POWER = (exponent) => 1n << BigInt(exponent);

/** A real number as {sign, top, bottom} with top / bottom >= 0, or {sign, special}. */
function readNumber(text) {
  const plain = text.trim().toLowerCase();
  const sign = plain.startsWith("-") ? 1 : 0;
  const body = plain.replace(/^[+-]/, "");
  if (/^inf(inity)?$/.test(body)) return { sign, special: "infinity" };
  if (body === "nan") return { sign, special: "nan" };
  const hex = body.match(/^0x([0-9a-f]*)(?:\.([0-9a-f]*))?p([+-]?\d{1,4})$/);
  if (hex && hex[1] + (hex[2] || "")) {
    const digits = BigInt("0x" + hex[1] + (hex[2] || ""));
    return scaled(sign, digits, 2n, Number(hex[3]) - 4 * (hex[2] || "").length);
  }
  const ratio = body.match(/^(\d{1,400})\/(\d{1,400})$/);
  if (ratio && BigInt(ratio[2])) {
    return { sign, top: BigInt(ratio[1]), bottom: BigInt(ratio[2]) };
  }
  const decimal = body.match(/^(\d*)(?:\.(\d*))?(?:e([+-]?\d{1,4}))?$/);
  if (decimal && decimal[1] + (decimal[2] || "") && body.length < 1000) {
    const digits = BigInt(decimal[1] + (decimal[2] || ""));
    return scaled(sign, digits, 10n, Number(decimal[3] || 0) - (decimal[2] || "").length);
  }
  return null;
}

function scaled(sign, digits, base, exponent) {
  const power = base ** BigInt(Math.abs(exponent));
  return exponent < 0 ? { sign, top: digits, bottom: power }
    : { sign, top: digits * power, bottom: 1n };
}

/** The exponent e with 2^e <= top / bottom < 2^(e + 1). */
function exponentOf(top, bottom) {
  const e = top.toString(2).length - bottom.toString(2).length;
  const atLeast = e < 0 ? (top << BigInt(-e)) >= bottom : top >= (bottom << BigInt(e));
  return atLeast ? e : e - 1;
}

/** A magnitude as m units of 2^quantum and the rest: w = rest / unit of the way to the next one. */
function place(number, format) {
  const emin = 1 - format.bias;
  const e = number.top ? Math.max(exponentOf(number.top, number.bottom), emin) : emin;
  const quantum = e - format.precision + 1;
  const top = quantum < 0 ? number.top * POWER(-quantum) : number.top;
  const unit = quantum < 0 ? number.bottom : number.bottom * POWER(quantum);
  return { m: top / unit, rest: top % unit, unit, quantum };
}

const GOES_UP = {
  RNE: (at) => 2n * at.rest > at.unit || (2n * at.rest === at.unit && at.m % 2n === 1n),
  RNA: (at) => 2n * at.rest >= at.unit,
  RNZ: (at) => 2n * at.rest > at.unit,
  RTZ: () => false,
  RTP: (at, sign) => at.rest > 0n && !sign,
  RTN: (at, sign) => at.rest > 0n && Boolean(sign),
  RAZ: (at) => at.rest > 0n,
  RTO: (at) => at.rest > 0n && at.m % 2n === 0n,
};
const MODES = Object.keys(GOES_UP);

/** Whether a mode leaves what is too large at the largest finite number. */
function staysFinite(mode, sign) {
  return mode === "RTZ" || mode === "RTO" || (mode === "RTP" && sign) || (mode === "RTN" && !sign);
}

function largest(format) {
  const even = format.specials === "fn" || format.specials === "extended";
  const top = (1 << format.exponentBits) - 1 - (format.specials === "ieee" ? 1 : 0);
  return { m: POWER(format.precision) - (even ? 2n : 1n),
    quantum: top - format.bias - format.precision + 1 };
}

function exceeds(m, quantum, most) {
  const shift = quantum - most.quantum;
  return shift >= 0 ? m << BigInt(shift) > most.m : m > most.m << BigInt(-shift);
}

/** The code of a number rounded by a mode. */
function encode(number, format, mode) {
  if (number.special === "nan") return specialCode("nan", 0, format);
  if (number.special === "infinity") return specialCode(format.infinite, number.sign, format);
  const at = place(number, format);
  const m = at.m + (GOES_UP[mode](at, number.sign) ? 1n : 0n);
  return finish(m, at.quantum, number.sign, format, staysFinite(mode, number.sign));
}

function finish(m, quantum, sign, format, stays) {
  const most = largest(format);
  if (exceeds(m, quantum, most)) {
    if (!stays) return specialCode(format.overflow, sign, format);
    return codeOf(most.m, most.quantum, sign, format);
  }
  return codeOf(m, quantum, sign, format);
}

function specialCode(kind, sign, format) {
  const fraction = format.precision - 1;
  const ones = POWER(format.exponentBits + fraction) - 1n;
  const signed = (code) => code + (sign ? ones + 1n : 0n);
  if (kind === "saturate") {
    const most = largest(format);
    return codeOf(most.m, most.quantum, sign, format);
  }
  if (format.specials === "ieee") {
    const top = ones - (POWER(fraction) - 1n);
    return kind === "infinity" ? signed(top) : top + POWER(fraction - 1);
  }
  if (kind === "infinity") return signed(ones);
  if (format.specials === "fn") return ones;
  if (format.specials === "finite") return specialCode("saturate", 0, format);
  return ones + 1n;
}

/** The code of m units of 2^quantum, where m may be the first one of the next binade. */
function codeOf(m, quantum, sign, format) {
  const fraction = format.precision - 1;
  const least = 1 - format.bias - fraction;
  const field = m < POWER(fraction) ? 0n : BigInt(quantum - least) + 1n;
  const code = field ? (field << BigInt(fraction)) + m - POWER(fraction) : m;
  const oneZero = format.specials === "fnuz" || format.specials === "extended";
  return code + (sign && (code || !oneZero) ? POWER(format.exponentBits + fraction) : 0n);
}

/** What a code says: {sign, special} or {sign, top, bottom}. */
function decode(code, format) {
  const fraction = format.precision - 1;
  const width = format.exponentBits + fraction;
  const sign = Number(code >> BigInt(width));
  const rest = code & (POWER(width) - 1n);
  for (const kind of ["nan", "infinity"]) {
    if (kind === "infinity" && !["ieee", "extended"].includes(format.specials)) continue;
    if (format.specials === "finite") continue;
    if (specialCode(kind, sign, format) === code) return { sign, special: kind };
  }
  const top = rest >> BigInt(fraction);
  if (format.specials === "ieee" && top === POWER(format.exponentBits) - 1n) {
    return { sign, special: "nan" };
  }
  if (format.specials === "fn" && rest === POWER(width) - 1n) return { sign, special: "nan" };
  const m = (rest & (POWER(fraction) - 1n)) + (top ? POWER(fraction) : 0n);
  const quantum = Math.max(Number(top), 1) - format.bias - fraction;
  return quantum < 0 ? { sign, top: m, bottom: POWER(-quantum) }
    : { sign, top: m * POWER(quantum), bottom: 1n };
}

/** How many of the 2^r random numbers make the magnitude go up. */
function draws(number, format, r) {
  const at = place(number, format);
  return (at.rest << BigInt(r)) / at.unit;
}

/** The neighbours of a number in a format, in words: the two around it, or those beside it. */
function around(number, format) {
  if (number.special) return "";
  const at = place(number, format);
  if (exceeds(at.m, at.quantum, largest(format))) return "beyond the largest";
  if (at.rest) {
    const [down, up] = ["RTN", "RTP"].map((mode) => decode(encode(number, format, mode), format));
    return `between ${toText(down)} and ${toText(up)}`;
  }
  const code = encode(number, format, "RTZ");
  const [down, up] = [-1n, 1n].map((way) => beside(code, way, format));
  return `exact, beside ${[down, up].filter(Boolean).map(toText).join(" and ")}`;
}

/** The next value in a direction (1n up, -1n down) from a finite code; null where there is none. */
function beside(code, way, format) {
  const signBit = POWER(format.exponentBits + format.precision - 1);
  const most = largest(format);
  // Codes of magnitudes in order are the values in order.
  const at = (code < signBit ? code : signBit - code) + way;
  const size = at < 0n ? -at : at;
  if (size <= codeOf(most.m, most.quantum, 0, format)) {
    return decode(size + (at < 0n ? signBit : 0n), format);
  }
  const hasInfinity = format.specials === "ieee" || format.specials === "extended";
  return hasInfinity ? { sign: Number(at < 0n), special: "infinity" } : null;
}

function toText(number) {
  const sign = number.sign ? "-" : "";
  if (number.special) return number.special === "nan" ? "NaN" : sign + "∞";
  if (!number.top) return sign + "0";
  const e10 = Math.floor(exponentOf(number.top, number.bottom) * 0.30103);
  let top = number.top;
  let bottom = number.bottom;
  const shift = 17n - BigInt(e10);
  if (shift > 0n) top *= 10n ** shift; else bottom *= 10n ** -shift;
  const value = Number(String((top + bottom / 2n) / bottom) + "e" + String(-shift));
  return Number.isFinite(value) && value ? sign + String(value) : sign + "about 1e" + e10;
}

function bitsHtml(code, format) {
  const width = format.exponentBits + format.precision;
  const digits = code.toString(2).padStart(width, "0");
  const cut = [1, 1 + format.exponentBits];
  const part = (name, text) => `<span class="bits-${name}" title="${name}">${text}</span>`;
  return part("sign", digits.slice(0, 1)) + part("exponent", digits.slice(cut[0], cut[1])) +
    part("fraction", digits.slice(cut[1]));
}

function hexOf(code, format) {
  const digits = Math.ceil((format.exponentBits + format.precision) / 4);
  return "0x" + code.toString(16).padStart(digits, "0");
}

function row(cells) {
  return "<tr>" + cells.map((cell) => `<td>${cell}</td>`).join("") + "</tr>";
}

function showFormats(number, mode) {
  return FORMATS.map((format) => {
    const code = encode(number, format, mode);
    return row([format.name, bitsHtml(code, format), hexOf(code, format),
      toText(decode(code, format)), around(number, format)]);
  }).join("");
}

function showModes(number, format, bits) {
  const rows = MODES.map((mode) => {
    const code = encode(number, format, mode);
    return row([mode, bitsHtml(code, format), hexOf(code, format), toText(decode(code, format))]);
  });
  if (number.special || !format.randomBits) return rows.join("");
  const up = draws(number, format, bits);
  const all = POWER(bits);
  rows.push(row([`SR(${bits})`, "", "", `${up} of ${all} random numbers go away from zero, ` +
    `${(Number(up * 1000000n / all) / 10000).toFixed(4)} %`]));
  return rows.join("");
}

/** A finite number of a format as a text that `readNumber` takes, exactly. */
function exactText(number) {
  const sign = number.sign ? "-" : "";
  if (number.special) return number.special === "nan" ? "nan" : `${sign}inf`;
  return `${sign}0x${number.top.toString(16)}p${1 - number.bottom.toString(2).length}`;
}

/** What is wrong with a number, and what to give; "" where nothing is. */
function numberFault(text) {
  if (readNumber(text)) return "";
  const typed = text.trim();
  if (!typed) return "Give a number: 0.1, 1/3, 1e-5, 0x1.8p-1, inf or nan.";
  if (/^[+-]?\d+,\d+$/.test(typed)) {
    return `Number ${typed} has a comma; write ${typed.replace(",", ".")}.`;
  }
  if (/^0[xb][0-9a-f]+$/i.test(typed)) {
    return `${typed} is a code; give it in the field "Code" below, beside its format.`;
  }
  if (/^[+-]?\d+\/0+$/.test(typed)) return `Number ${typed} divides by zero; give inf or nan.`;
  return `Number ${typed.slice(0, 40)} cannot be read; give 0.1, 1/3, 1e-5, 0x1.8p-1, inf or nan.`;
}

/** What is wrong with a number of random bits in a format; "" where nothing is. */
function randomFault(text, format) {
  const most = format.randomBits;
  if (!most || (/^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= most)) return "";
  return `Random bits ${text || "missing"}: give a whole number from 1 to ${most} in ${format.name}.`;
}

/** A code as it is typed (0x3c00, 0b0011110000000000 or 15360); null where the format has no such. */
function readCode(text, format) {
  const typed = text.trim().toLowerCase();
  if (!/^(0x[0-9a-f]{1,16}|0b[01]{1,64}|\d{1,20})$/.test(typed)) return null;
  const code = BigInt(typed);
  return code < POWER(format.exponentBits + format.precision) ? code : null;
}

function codeFault(text, format) {
  if (readCode(text, format) !== null) return "";
  const last = POWER(format.exponentBits + format.precision) - 1n;
  return `Code ${text.trim().slice(0, 40)} is none of ${format.name}; ` +
    `give ${hexOf(0n, format)} to ${hexOf(last, format)}, or 0b and binary digits.`;
}

function start() {
  const get = (name) => document.getElementById("bits-" + name);
  get("format").innerHTML = FORMATS.map((f) => `<option>${f.name}</option>`).join("");
  get("mode").innerHTML = MODES.map((mode) => `<option>${mode}</option>`).join("");
  get("format").value = "binary16";
  const currentFormat = () => FORMATS.find((f) => f.name === get("format").value);
  const update = () => {
    const [text, format] = [get("number").value, currentFormat()];
    const told = numberFault(text);
    const refused = randomFault(get("random").value, format);
    get("error").textContent = told;
    get("format-error").textContent = told ? "" : refused;
    const number = told ? null : readNumber(text);
    get("formats").innerHTML = number ? showFormats(number, get("mode").value) : "";
    get("modes").innerHTML =
      number && !refused ? showModes(number, format, Number(get("random").value)) : "";
  };
  const readTypedCode = () => {
    const [text, format] = [get("code").value, currentFormat()];
    const told = text.trim() ? codeFault(text, format) : "";
    if (text.trim() && !told) get("number").value = exactText(decode(readCode(text, format), format));
    update();
    if (told) {
      get("format-error").textContent = told;
      get("modes").innerHTML = "";
    }
  };
  for (const name of ["number", "random", "mode"]) {
    get(name).addEventListener("input", update);
  }
  for (const name of ["code", "format"]) get(name).addEventListener("input", readTypedCode);
  get("number").addEventListener("input", () => { get("code").value = ""; });
  update();
}

if (document.getElementById("bits-number")) start();
