// Fill the page: title, what is missing, the charts, the labels, and how it was made.

function startTitle() {
  document.title = `${data.data} · ${data.folder} · labelemb report`;
  byId("title").append(...breakable(data.data), el("span", { class: "folder" }, " in ", ...breakable(data.folder)));
  const examples = data.about.examples;
  const runs = data.methods.reduce((sum, method) => sum + method.runs.length, 0);
  const words = [`recipe ${data.recipe}`, `${plural(runs, "finished run")} of ${plural(data.methods.length, "method")}`];
  if (examples) words.push(`${plural(examples.labels, "label")}`, `${examples.train.toLocaleString("en")} training and ${examples.test.toLocaleString("en")} test examples`);
  if (data.about.epochs) words.push(plural(data.about.epochs, "epoch"));
  byId("subtitle").textContent = words.join(" · ");
}

function startMissing() {
  const lines = data.unfinished.map((run) => `${run.method}, seed ${run.seed}: unfinished, ${run.of ? `epoch ${run.epoch} of ${run.of}` : `epoch ${run.epoch}`}`);
  if (!data.methods.length) lines.unshift(data.unfinished.length ? "No run is finished, so there are no scores. Run the same command again to continue." : "No run has started yet: the folder has only the recipe.");
  else if (!data.spaces.length && !data.notes.length) lines.push("No finished run has a label space: these methods learn none, or labels.safetensors is missing.");
  lines.push(...data.notes);
  byId("missing").hidden = !lines.length;
  byId("missing-list").append(...lines.map((line) => el("li", {}, line)));
}

function startFacts() {
  const { command, machine, versions, parameters } = data.about;
  const facts = [["command", command && el("code", {}, command)], ["recipe", data.recipe]];
  if (parameters) facts.push(["parameters", `${parameters.predicting.toLocaleString("en")} to predict (body ${parameters.body.toLocaleString("en")})`]);
  if (machine) facts.push(["machine", [machine.cpu, machine.gpu, plural(machine.threads, "thread"), machine.system].filter(Boolean).join(", ")]);
  facts.push(["versions", versions ? Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", ") : `labelemb ${data.version}`]);
  for (const [name, value] of facts) if (value) byId("facts").append(el("dt", {}, name), el("dd", {}, value));
}

function startContents() {
  const titles = { missing: "Missing", results: "Results", training: "Curves", quality: "Calibration and time", labels: "Labels", matrices: data.methods.some((method) => method.confusion) ? "Heatmap and confusion" : "Heatmap", pairs: "Pairs", worst: "Errors", "all-labels": "All labels", about: "How it was made" };
  for (const [id, title] of Object.entries(titles)) if (!byId(id).hidden) byId("contents").append(el("a", { href: `#${id}` }, title));
  if (byId("labels").hidden) document.querySelector(".skip").hidden = true;
}

for (const start of [startTheme, startPictures, startTitle, startMissing, startMethods, startSummary, startRows, startCurves, startCalibration, startSearch, startMatrices, startPairs, startMap, startLabels, startSpace, startWorst, startFacts, startContents]) start();
