// Sites of several versions lie side by side, with versions.js in their folder, which
// docs/extensions/versions.py writes: it knows the pages of each. A list in the navigation leads to
// the same page of another version, or to its first page. No server is needed; a site that lies
// alone has no list.
const HERE = document.documentElement.dataset.content_root || "./";

function pageOf(address) {
  const root = new URL(HERE, address).href;
  return address.split(/[?#]/)[0].slice(root.length) || "index.html";
}

function addList({ names, pages }) {
  const mine = new URL(HERE, location.href).pathname.split("/").filter(Boolean).pop();
  const list = document.createElement("select");
  for (const name of names) list.add(new Option(name, name, false, name === decodeURI(mine)));
  list.addEventListener("change", () => {
    const page = pageOf(location.href);
    const target = pages[list.value].includes(page) ? page : "index.html";
    location.href = new URL(`${HERE}../${encodeURI(list.value)}/${target}`, location.href).href;
  });
  const label = document.createElement("label");
  label.className = "versions";
  label.append("Version ", list);
  document.querySelector(".sidebar-brand").after(label);
}

document.addEventListener("DOMContentLoaded", () => {
  const script = document.createElement("script");
  script.src = `${HERE}../versions.js`;
  script.addEventListener("load", () => window.FPSIM_VERSIONS && addList(window.FPSIM_VERSIONS));
  document.head.append(script);
});
