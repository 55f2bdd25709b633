"use strict";
// Sends what is typed to the program that served this page, and shows the answer as text, never as markup.
(function () {
  const byId = (name) => document.getElementById(name);
  const text = byId("text"), epsilon = byId("epsilon"), slide = byId("slide"), output = byId("output");
  const status = byId("status"), mechanism = byId("mechanism");
  const lowest = Math.log(epsilon.dataset.lowest), highest = Math.log(epsilon.dataset.highest);
  let timer = 0, asked = 0, drawn = "", draws = 0, spent = 0;

  const settings = () => ({ mechanism: mechanism.value, epsilon: Number(epsilon.value) });

  async function ask(path, body) {
    const answer = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), cache: "no-store",
    });
    return [answer.status, await answer.json()];
  }

  const fail = (message) => { status.className = "error"; status.textContent = message; };
  const tell = (message) => { status.className = ""; status.textContent = message; };

  function row(body, values, head) {
    const made = document.createElement("tr");
    values.forEach((value, place) => {
      const cell = document.createElement(place === 0 && head ? "th" : "td");
      if (place === 0 && head) cell.scope = "row"; else cell.className = "number";
      cell.textContent = value;
      made.appendChild(cell);
    });
    body.appendChild(made);
    return made;
  }

  function list(body, sentences) {
    body.replaceChildren(...sentences.map((each) => {
      const made = document.createElement("li");
      made.textContent = each;
      return made;
    }));
  }

  function show(answer) {
    output.replaceChildren();
    for (const [word, blank, kind] of answer.tokens) {
      if (word.trim() === "") {
        for (const _ of word.match(/\n/g) || []) output.appendChild(document.createElement("br"));
        continue;
      }
      const span = document.createElement("span");
      const same = kind === "same" && byId("mark").checked;
      span.className = "token " + kind.split(":")[0];
      span.title = same ? "drawn, stayed the same" : kind === "same" ? "drawn" : kind;
      span.textContent = word;
      output.appendChild(span);
      if (blank) output.appendChild(document.createTextNode(" "));
    }
    const proved = byId("proved");
    proved.hidden = false;
    proved.className = "badge " + (answer.proved ? "good" : "bad");
    proved.textContent = answer.proved ? "✓ bound proved" : "✗ not proved";
    // The bound does not say that a word changes, so the badge beside it says how often one stays.
    const stays = byId("stays"), words = answer.stays === null ? [] : answer.stays;
    const percent = ([word, keep]) => "“" + word + "” stays " + (100 * keep).toFixed(1) + " % " + answer.where;
    stays.hidden = words.length === 0;
    if (words.length > 0) {
      stays.className = "badge " + (words[0][1] > 0.5 ? "bad" : "good");
      stays.textContent = percent(words[0]);
    }
    byId("staying").textContent = answer.stays === null
      ? "How often a word stays is not known for this mechanism."
      : words.slice(1).map(percent).join(", ");
    byId("attacker").textContent = answer.attacker;
    byId("typical").textContent = answer.typical;
    list(byId("exposed"), answer.not_protected);
    list(byId("assumed"), answer.assumptions);
    byId("lists").hidden = false;
    byId("odds").replaceChildren();
    for (const values of answer.odds) row(byId("odds"), values, true);
    row(byId("odds"), ["any two texts of " + answer.drawn.toLocaleString("en") + " drawn words", "", answer.worst_document], true);
  }

  async function draw() {
    const mine = ++asked;
    window.clearTimeout(timer);
    if (text.value === "") { output.replaceChildren(); tell(""); return; }
    if (!(Number(epsilon.value) > 0)) { fail("Epsilon must be a number above 0."); return; }
    output.classList.add("waiting");
    const body = { text: text.value, ...settings() };
    try {
      const [code, answer] = await ask("/api/privatize", body);
      if (mine !== asked) return;
      output.classList.remove("waiting");
      if (code !== 200) { fail(answer.error); return; }
      if (body.text !== drawn) { drawn = body.text; draws = 0; spent = 0; }
      draws += 1;
      spent += body.epsilon;
      show(answer);
      byId("draws").textContent = "This text has been drawn " + draws + (draws === 1 ? " time" : " times") +
        " on this page: epsilon " + Number(spent.toPrecision(4)) + " in all, if every draw were released.";
      tell(answer.drawn.toLocaleString("en") + " words drawn by " + answer.mechanism + ".");
    } catch {
      output.classList.remove("waiting");
      if (mine === asked) fail("The program that serves this page does not answer. Is it still running?");
    }
  }

  function soon() {
    asked += 1;
    window.clearTimeout(timer);
    timer = window.setTimeout(draw, 250);
  }

  const place = () => { slide.value = 100 * (Math.log(epsilon.value) - lowest) / (highest - lowest); };
  slide.addEventListener("input", () => {
    epsilon.value = Number(Math.exp(lowest + slide.value / 100 * (highest - lowest)).toPrecision(3));
    soon();
  });
  epsilon.addEventListener("input", () => { place(); soon(); });
  text.addEventListener("input", soon);
  mechanism.addEventListener("change", soon);
  byId("mark").addEventListener("change", () => {
    output.classList.toggle("marked", byId("mark").checked);
    byId("legend").hidden = !byId("mark").checked;
  });
  byId("form").addEventListener("submit", (event) => { event.preventDefault(); draw(); });
  byId("word-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const told = byId("word-answer"), law = byId("law");
    law.hidden = true;
    try {
      const [code, answer] = await ask("/api/word", { word: byId("word").value.trim(), ...settings() });
      if (code !== 200) { told.textContent = answer.error; return; }
      told.textContent = "“" + answer.word + "” stays as it is with probability " + answer.keep.toPrecision(3) + ".";
      // Each group within the next wider one.
      let within = byId("groups");
      within.replaceChildren();
      for (const group of answer.groups) {
        const item = document.createElement("li");
        item.textContent = group;
        within.appendChild(document.createElement("ul")).appendChild(item);
        within = item;
      }
      const body = byId("outputs");
      body.replaceChildren();
      const largest = answer.outputs[0][1];
      for (const [word, probability, distance] of answer.outputs) {
        const made = row(body, [word, "", probability.toPrecision(3), distance.toFixed(3)], true);
        const bar = document.createElement("span");
        bar.className = "bar";
        bar.style.width = (100 * probability / largest).toFixed(1) + "%";
        made.children[1].className = "bar-cell";
        made.children[1].appendChild(bar);
      }
      law.hidden = false;
    } catch {
      told.textContent = "The program that serves this page does not answer.";
    }
  });

  place();
  draw();
})();
