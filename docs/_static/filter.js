// Tables of the class "filterable" get a choice for each column that is marked with data-filter.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".filterable")) {
    const rows = [...box.querySelectorAll("tbody tr")];
    const bar = document.createElement("p");
    const shown = document.createElement("output");
    const choices = [];
    const update = () => {
      let count = 0;
      for (const row of rows) {
        const fits = choices.every(([column, choice]) =>
          !choice.value || row.cells[column].textContent === choice.value);
        row.hidden = !fits;
        count += fits;
      }
      shown.textContent = `${count} of ${rows.length} rows`;
    };
    [...box.querySelectorAll("th")].forEach((head, column) => {
      if (!("filter" in head.dataset)) return;
      const choice = document.createElement("select");
      choice.setAttribute("aria-label", head.textContent);
      choice.add(new Option(`${head.textContent}: all`, ""));
      for (const value of new Set(rows.map((row) => row.cells[column].textContent)))
        choice.add(new Option(value, value));
      choice.addEventListener("change", update);
      choices.push([column, choice]);
      bar.append(choice, " ");
    });
    bar.append(shown);
    box.before(bar);
    update();
  }
});
