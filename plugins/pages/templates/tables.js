// Long tables: a click on a heading sorts by its column, and a field above keeps the rows that
// have a text in them. Without scripts they are as the server wrote them.
const FEW = 8;
const value = (row, column) => row.cells[column]?.innerText.trim() ?? "";
const number = (text) => (/^[+-]?[\d,.]+\s*%?$/.test(text) ? Number(text.replace(/[,%\s]/g, "")) : NaN);
const compare = (a, b) => {
  const [x, y] = [number(a), number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
};
for (const table of document.querySelectorAll("table.long")) {
  const [head, ...rows] = table.rows;
  [...head.cells].forEach((cell, column) => {
    if (!cell.innerText.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort((a, b) => compare(value(a, column), value(b, column)) * (down ? -1 : 1));
      head.parentNode.append(...rows);
    });
  });
  if (rows.length <= FEW) continue;
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = `filter ${rows.length} rows`;
  field.setAttribute("aria-label", "filter rows");
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of rows) row.hidden = !row.innerText.toLowerCase().includes(wanted);
  });
  table.parentNode.before(field);
}
