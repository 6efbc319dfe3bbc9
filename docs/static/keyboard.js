// The theme's switches (navigation, contents, branches of the tree) are labels of check boxes that
// are hidden, so a pointer alone reaches them. They become buttons that the keyboard reaches too.
const NAMES = { __navigation: "Navigation", __toc: "Contents of this page" };

function makeButton(label) {
  const box = document.getElementById(label.htmlFor);
  if (!box || label.classList.contains("overlay")) return;
  const tell = () => label.setAttribute("aria-expanded", box.checked);
  label.tabIndex = 0;
  label.setAttribute("role", "button");
  label.setAttribute("aria-label", NAMES[box.id] || box.getAttribute("aria-label") || "Toggle");
  label.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    box.click();
  });
  box.addEventListener("change", tell);
  tell();
}

// Escape closes what lies over the page.
function closeDrawers(event) {
  if (event.key !== "Escape") return;
  for (const box of document.querySelectorAll(".sidebar-toggle:checked")) box.click();
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("label[for^='__'], label[for^='toctree-checkbox']").forEach(makeButton);
  document.addEventListener("keydown", closeDrawers);
});
