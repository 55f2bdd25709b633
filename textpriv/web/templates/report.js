"use strict";
// Looks up a typed word among those shipped with the page. Everything is put in as text, never as markup.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byWord = new Map(data.words.map((entry) => [entry.word, entry]));
  const input = document.getElementById("word");
  const answer = document.getElementById("answer");
  const body = document.getElementById("outputs");
  const rest = document.getElementById("rest");
  const section = document.getElementById("law");

  const number = (value, digits) => Number(value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const share = (value) => value >= 0.001 ? number(value, 4) : value === 0 ? "0" : value.toExponential(1);

  function cell(row, text, name) {
    const made = document.createElement("td");
    made.textContent = text;
    if (name) made.className = name;
    row.appendChild(made);
    return made;
  }

  function show() {
    const word = input.value.trim();
    const entry = byWord.get(word) || byWord.get(word.toLowerCase()) || null;
    section.hidden = entry === null;
    if (entry === null) {
      const near = word === "" ? [] : data.words.filter((each) => each.word.startsWith(word.toLowerCase())).slice(0, 8);
      answer.textContent = word === "" ? "Type a word." :
        near.length ? "Words that begin so: " + near.map((each) => each.word).join(", ") + "."
          : "“" + word + "” is not among the " + data.words.length + " words that come with this page.";
      return;
    }
    const about = data.exact ? "" : "about ";
    answer.textContent = "“" + entry.word + "” stays as it is with probability " + about + share(entry.keep) + ".";
    body.replaceChildren();
    let held = 0;
    const largest = Math.max(...entry.outputs.map((each) => each[1]), 1e-12);
    for (const [place, probability, distance] of entry.outputs) {
      const row = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = data.vocabulary[place];
      if (data.vocabulary[place] === entry.word) head.style.fontWeight = "650";
      row.appendChild(head);
      const bar = document.createElement("span");
      bar.className = "bar";
      bar.style.width = (100 * probability / largest).toFixed(1) + "%";
      bar.setAttribute("aria-hidden", "true");
      cell(row, "", "bar-cell").appendChild(bar);
      cell(row, share(probability), "number");
      cell(row, number(distance, 3), "number");
      body.appendChild(row);
      held += probability;
    }
    rest.textContent = share(Math.max(0, 1 - held));
  }

  const wanted = decodeURIComponent(location.hash.replace(/^#word=/, ""));
  input.value = location.hash.startsWith("#word=") ? wanted
    : data.words.reduce((best, each) =>
      each.word.length > 3 && Math.abs(each.keep - 0.5) < Math.abs(best.keep - 0.5) ? each : best).word;
  input.addEventListener("input", show);
  document.getElementById("another").addEventListener("click", function () {
    input.value = data.words[Math.floor(Math.random() * data.words.length)].word;
    show();
  });
  document.getElementById("lookup").hidden = false;
  show();
})();
