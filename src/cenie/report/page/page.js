/* The program of the page. What comes from run directories is shown as text, never as markup. */
"use strict";
(() => {
  const FORMAT = 1, LEVELS_AT_ONCE = 12, MOMENT = 900, REST = 900, POLL = 3000;
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "hexagon"];
  const SCALES = { light: ["#3b2a8c", "#1f9e8a", "#f2c037"], dark: ["#5c7cfa", "#2bb3a3", "#ffe066"] };
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const byId = (id) => document.getElementById(id);
  const wantsCalm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const isDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isTouch = window.matchMedia("(pointer: coarse)");
  const isNarrow = window.matchMedia("(max-width: 860px)");
  let data = null;

  /* The page holds its data and the plotting library compressed; browsers unpack them, since 2023 all of them. */
  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  /* What the reader has chosen; it survives new data. */
  const chosen = { curriculum: null, x: null, y: null, colour: null, moment: null, level: null, suite: 0, curveX: "updates", statistic: "IQM", metric: null, hidden: new Set() };

  /* ---- small parts ---- */

  function make(tag, settings = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(settings)) {
      if (name === "class") element.className = value;
      else if (name === "style") Object.assign(element.style, value);
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }
  const fill = (element, ...children) => element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
  /* Plotly reads a little markup in its labels; names must not be taken for any. */
  const label = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const say = (text) => { byId("spoken").textContent = text; };
  const isPicture = (source) => typeof source === "string" && source.startsWith("data:image/webp;base64,");

  function number(value, digits = 3) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const size = Math.abs(value);
    return size >= 1000 || (size < 0.001 && size > 0) ? value.toExponential(1) : String(Number(value.toPrecision(digits)));
  }

  /* A statistic that is missing is one of scores that are NaN. */
  const known = (value) => (value === null || value === undefined ? "NaN" : number(value));

  function options(select, entries, value) {
    fill(select, ...entries.map(([key, title]) => make("option", { value: key }, title)));
    select.value = value;
  }

  function command(text) {
    const code = make("code", {}, text);
    const button = make("button", { type: "button", class: "copy" }, "Copy");
    button.addEventListener("click", () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      let done = false;
      try { done = document.execCommand("copy"); } catch { done = false; }
      button.textContent = done ? "Copied" : "Selected";
      say(done ? "copied" : "selected; copy it with the keyboard");
      window.setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    return make("div", { class: "command" }, code, button);
  }

  function numbers(pairs) {
    const list = make("dl");
    for (const [name, value] of pairs) list.append(make("dt", {}, name), make("dd", {}, value));
    return list;
  }

  /* ---- films: the frames of an episode lie in rows in one picture ---- */

  class Player {
    constructor(film, name, { autoplay = false } = {}) {
      this.film = film; this.frame = film.count - 1; this.playing = false; this.ready = false; this.last = 0;
      this.canvas = make("canvas", { class: "screen", width: film.width, height: film.height, role: "img", "aria-label": `${name}: ${film.solved ? "solved" : "not solved"} in ${number(film.length)} steps` });
      this.button = make("button", { type: "button", class: "round", onclick: () => this.toggle() });
      this.slider = make("input", { type: "range", min: 0, max: film.count - 1, value: 0, step: 1, "aria-label": `Step of the episode on ${name}`, oninput: () => { this.pause(); this.show(Number(this.slider.value)); } });
      this.text = make("p", { class: "player-text" });
      this.root = make("div", { class: "player" }, this.canvas, make("div", { class: "player-bar" }, this.button, this.slider), this.text);
      this.name = name;
      this.canvas.addEventListener("click", () => this.toggle());
      this.update();
      this.image = new Image();
      this.image.onload = () => { this.ready = true; this.show(this.frame); if (autoplay && !wantsCalm.matches) this.play(); };
      if (isPicture(film.source)) this.image.src = film.source;
    }
    show(frame) {
      this.frame = frame;
      const { width, height, columns } = this.film;
      if (this.ready) {
        const context = this.canvas.getContext("2d");
        context.imageSmoothingEnabled = false;
        context.drawImage(this.image, (frame % columns) * width, Math.floor(frame / columns) * height, width, height, 0, 0, width, height);
      }
      this.update();
    }
    update() {
      const { film } = this;
      this.root?.setAttribute("data-frame", this.frame);
      this.root?.setAttribute("data-state", this.playing ? "playing" : "paused");
      this.slider.value = this.frame;
      this.slider.setAttribute("aria-valuetext", `step ${film.steps[this.frame]} of ${film.length}`);
      this.button.textContent = this.playing ? "❚❚" : "▶";
      this.button.setAttribute("aria-label", `${this.playing ? "Pause" : "Play"} the episode on ${this.name ?? ""}`);
      fill(this.text, make("span", { class: film.solved ? "good" : "bad" }, film.solved ? "solved" : "not solved"),
        `, step ${number(film.steps[this.frame])} of ${number(film.length)}, return ${number(film.return)}`);
    }
    play() {
      if (this.frame >= this.film.count - 1) this.frame = 0;
      this.playing = true; this.last = performance.now(); this.update();
      const tick = (now) => {
        if (!this.playing) return;
        if (!this.root.isConnected) { this.playing = false; return; }
        const atEnd = this.frame >= this.film.count - 1;
        if (now - this.last >= (atEnd ? REST : 1000 / this.film.fps)) {
          this.last = now;
          this.show(atEnd ? 0 : this.frame + 1);
        }
        window.requestAnimationFrame(tick);
      };
      window.requestAnimationFrame(tick);
    }
    pause() { this.playing = false; this.update(); }
    toggle() { this.playing ? this.pause() : this.play(); }
  }

  /* ---- plots ---- */

  function layout(more) {
    const ink = colourOf("--ink"), grid = colourOf("--grid"), quiet = colourOf("--quiet");
    const axis = (own) => ({ gridcolor: grid, zerolinecolor: grid, linecolor: grid, tickfont: { color: quiet }, automargin: true, ...own, title: { text: own?.title ?? "", font: { color: ink, size: 13 }, standoff: 8 } });
    const { xaxis, yaxis, ...rest } = more;
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
      font: { color: ink, family: getComputedStyle(document.body).fontFamily, size: 13 },
      margin: { l: 52, r: 14, t: 10, b: 46 }, dragmode: isTouch.matches ? false : "zoom",
      hoverlabel: { bgcolor: colourOf("--card"), bordercolor: colourOf("--line"), font: { color: ink } },
      xaxis: axis(xaxis), yaxis: axis(yaxis), ...rest,
    };
  }
  const SETTINGS = { displayModeBar: false, responsive: true, doubleClick: "reset" };

  /* ---- the curriculum ---- */

  const curriculum = () => data.curricula[chosen.curriculum];
  /* The one in which there is most to see: with novelty, or at least with a level buffer. */
  function firstCurriculum() {
    const worth = data.curricula.map((made) => (made.frames.length ? 1 : 0) + (made.hasBuffer ? 1 : 0) + (made.x === "novelty" ? 1 : 0));
    return Math.max(0, worth.indexOf(Math.max(...worth)));
  }
  const runOf = (made) => data.runs[made.run];
  const titleOfRun = (run) => `${data.groups[run.group].title}, seed ${run.seed}`;
  const columnTitle = (made, name) => made.columns.find((column) => column.name === name)?.title ?? name;
  const shortTitle = (title) => title.replace(/ \(.*\)$/, "");

  /* The values of a column at a moment, in the order of that moment's levels. */
  function column(made, frame, name) {
    if (name === "id") return frame.levels.map((at) => made.ids[at]);
    if (made.fixed[name]) return frame.levels.map((at) => made.fixed[name][at]);
    return frame.values[name] ?? frame.levels.map(() => null);
  }

  function range(made, name) {
    let low = Infinity, high = -Infinity;
    for (const frame of made.frames) for (const value of column(made, frame, name)) {
      if (value === null || value === undefined) continue;
      low = Math.min(low, value); high = Math.max(high, value);
    }
    if (!(low <= high)) return { low: 0, high: 1 };
    return { low, high };
  }

  function axisOf(made, name) {
    const { low, high } = range(made, name);
    if (name === "probability" && low > 0 && high / low > 100) return { type: "log", range: [Math.log10(low) - 0.1, Math.log10(high) + 0.1], exponentformat: "power" };
    const room = (high - low || 1) * 0.05;
    return { range: [low - room, high + room] };
  }

  function drawCurriculum() {
    const section = byId("curriculum");
    section.hidden = !data.curricula.some((made) => made.frames.length);
    if (section.hidden) return;
    const made = curriculum();
    const names = made.columns.map((each) => each.name);
    for (const axis of ["x", "y", "colour"]) if (!names.includes(chosen[axis])) chosen[axis] = made[axis];
    options(byId("curriculum-run"), data.curricula.map((each, at) => [at, titleOfRun(runOf(each))]), chosen.curriculum);
    const entries = made.columns.map((each) => [each.name, shortTitle(each.title)]);
    for (const [id, axis] of [["axis-x", "x"], ["axis-y", "y"], ["axis-colour", "colour"]]) options(byId(id), entries, chosen[axis]);
    byId("curriculum-lead").textContent = made.hasBuffer
      ? "Each dot is a level that the teacher keeps; a large one is likely to be replayed next. Move the slider to go through training."
      : "This method keeps no level buffer. Each dot is a level that was played since the moment before.";
    byId("scatter-help").textContent = (isTouch.matches ? "Tap a dot to see its level" : "Point at a dot to see its level, click it")
      + (Object.keys(made.films).length ? " to play the student's episode; ringed dots have one. " : ". ")
      + "With the keyboard: arrow keys go from dot to dot, Enter plays.";
    const time = byId("time");
    time.max = made.frames.length - 1;
    if (chosen.moment === null || chosen.moment > made.frames.length - 1) chosen.moment = made.frames.length - 1;
    time.value = chosen.moment;
    byId("time-play").disabled = made.frames.length < 2;
    drawMoment();
    drawCard(false);
  }

  /* How many levels have no value of what is chosen: a dot without a place is not drawn, one without a colour is grey. */
  function missingText(made, values) {
    const count = (axis) => values[axis].filter((value) => value === null).length;
    const name = (axis) => shortTitle(columnTitle(made, chosen[axis]));
    const levels = (many) => `${number(many)} of ${number(values.x.length)} levels`;
    const found = [];
    for (const axis of chosen.x === chosen.y ? ["x"] : ["x", "y"]) if (count(axis)) found.push(`${levels(count(axis))} are not drawn: no ${name(axis)} is known of them.`);
    if (count("colour") && !["x", "y"].some((axis) => chosen[axis] === chosen.colour)) found.push(`${levels(count("colour"))} are grey: no ${name("colour")} is known of them.`);
    return found.join(" ");
  }

  function drawMoment() {
    const made = curriculum(), frame = made.frames[chosen.moment];
    const [x, y, colour] = ["x", "y", "colour"].map((axis) => column(made, frame, chosen[axis]));
    const chances = frame.values.probability ?? [];
    const most = Math.max(1e-12, ...chances.filter((value) => value !== null));
    const filmed = frame.levels.map((at) => made.ids[at] in made.films);
    const missing = colourOf("--missing"), shades = range(made, chosen.colour), ink = colourOf("--ink"), scale = SCALES[isDark.matches ? "dark" : "light"];
    const dots = {
      type: "scatter", mode: "markers", x, y, hoverinfo: "none", ids: frame.levels.map(String), cliponaxis: false,
      marker: {
        size: frame.levels.map((_, place) => 6 + 12 * Math.sqrt((chances[place] ?? 0) / most)),
        color: colour.map((value) => value ?? missing), cmin: shades.low, cmax: shades.high > shades.low ? shades.high : shades.low + 1,
        colorscale: scale.map((shade, at) => [at / (scale.length - 1), shade]),
        opacity: 0.85,
        line: { color: ink, width: filmed.map((has) => (has ? 1.8 : 0)) },
        showscale: false,
      },
    };
    const at = frame.levels.indexOf(chosen.level);
    const ring = { type: "scatter", mode: "markers", hoverinfo: "skip", x: at < 0 ? [] : [x[at]], y: at < 0 ? [] : [y[at]], cliponaxis: false,
      marker: { size: 24, color: "rgba(0,0,0,0)", line: { color: colourOf("--bad"), width: 3 } } };
    const titleX = label(columnTitle(made, chosen.x)), titleY = label(columnTitle(made, chosen.y));
    Plotly.react("scatter", [dots, ring], layout({
      xaxis: { title: titleX, ...axisOf(made, chosen.x) }, yaxis: { title: titleY, ...axisOf(made, chosen.y) },
      margin: { l: 56, r: 14, t: 12, b: 48 }, uirevision: `${chosen.curriculum} ${chosen.x} ${chosen.y}`,
    }), SETTINGS);
    fill(byId("scale"), make("span", {}, `${shortTitle(columnTitle(made, chosen.colour))}: ${number(shades.low)}`),
      make("span", { class: "scale-bar", style: { background: `linear-gradient(90deg, ${scale.join(", ")})` } }), make("span", {}, number(shades.high)));
    byId("missing").textContent = missingText(made, { x, y, colour });
    const shown = frame.levels.length < frame.total ? `${number(frame.levels.length)} of ${number(frame.total)} levels shown` : `${number(frame.total)} levels`;
    const text = `After ${number(frame.updates)} updates (cycle ${number(frame.cycle)}): ${shown}`;
    byId("time-label").textContent = text;
    byId("time").setAttribute("aria-valuetext", text);
    byId("scatter").setAttribute("aria-label", `${shortTitle(titleY)} against ${shortTitle(titleX)}. ${text}`);
    drawReplayed(made, frame, chances);
  }

  function picture(source, text) {
    const image = make("img", { alt: text, decoding: "async" });
    if (isPicture(source)) image.src = source;
    return image;
  }

  function drawReplayed(made, frame, chances) {
    const order = frame.levels.map((_, place) => place).filter((place) => chances[place] !== null && chances[place] !== undefined)
      .sort((one, two) => chances[two] - chances[one]).slice(0, LEVELS_AT_ONCE);
    const drawn = order.filter((place) => made.ids[frame.levels[place]] in made.pictures);
    byId("replayed-block").hidden = !drawn.length;
    fill(byId("replayed"), ...drawn.map((place) => {
      const at = frame.levels[place], id = made.ids[at];
      const button = make("button", { type: "button", class: "thumb", "aria-pressed": String(at === chosen.level), onclick: () => select(at, true) },
        picture(made.pictures[id], `level ${id}`), `${number(100 * chances[place], 2)} %`);
      return make("div", { role: "listitem" }, button);
    }));
  }

  /* Everything that is known of a level at a moment: pairs of a name and a value. */
  function facts(made, frame, at) {
    const place = frame.levels.indexOf(at);
    const found = [];
    for (const { name, title } of made.columns) {
      if (name === "id") continue;
      const value = made.fixed[name] ? made.fixed[name][at] : place < 0 ? null : frame.values[name]?.[place];
      if (value !== null && value !== undefined) found.push([shortTitle(title), number(value)]);
    }
    return found;
  }
  const nameOf = (made, at) => (made.hasBuffer ? `Level ${made.ids[at]}` : "A level that was played");

  let cardShown = null;
  function drawCard(autoplay) {
    const made = curriculum(), card = byId("card");
    if (chosen.level === null || chosen.level >= made.ids.length) {
      cardShown = null;
      fill(card, make("h3", {}, "No level chosen"), make("p", { class: "quiet" }, "Choose a dot, or one of the levels below, to see the level and the student on it."),
        made.noFilms ? make("p", { class: "hint" }, made.noFilms) : null);
      return;
    }
    const at = chosen.level, id = made.ids[at], frame = made.frames[chosen.moment];
    const film = made.films[id], drawing = made.pictures[id], parent = made.ids.indexOf(made.parents[at]);
    const now = JSON.stringify([made.run, id, film?.source, facts(made, frame, at)]);
    if (now === cardShown && !autoplay) return;
    cardShown = now;
    const parts = [make("h3", {}, nameOf(made, at))];
    if (film) parts.push(new Player(film, nameOf(made, at), { autoplay }).root);
    /* Where a film shows the whole level, its picture says no more; where a camera follows the student, it does. */
    if (drawing && !film?.showsLevel) {
      const image = picture(drawing, nameOf(made, at));
      image.className = "screen";
      parts.push(image);
    }
    if (!frame.levels.includes(at)) parts.push(make("p", { class: "hint" }, "It is not in the buffer at this moment."));
    parts.push(numbers(facts(made, frame, at)));
    if (made.hasBuffer && made.parents[at] >= 0) {
      parts.push(parent >= 0 ? make("button", { type: "button", onclick: () => select(parent, true) }, `Edited from level ${made.parents[at]}`)
        : make("p", { class: "hint" }, `Edited from level ${made.parents[at]}, which is not shown.`));
    }
    if (film) parts.push(make("p", { class: "hint" }, "The episode is one of the newest student's; actions are sampled. It was played for this page alone and counts nowhere."));
    else if (made.hasBuffer) {
      parts.push(make("p", { class: "hint" }, made.noFilms ?? "There is no room for an episode on every level. This makes one:"));
      if (!made.noFilms) parts.push(command(`cenie play ${quoted(runOf(made).path)} ${id}`));
    }
    fill(card, ...parts);
  }
  const quoted = (text) => (/^[\w./+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

  function select(at, autoplay) {
    chosen.level = at;
    drawMoment();
    drawCard(autoplay);
    const made = curriculum();
    say(`${nameOf(made, at)}: ${facts(made, made.frames[chosen.moment], at).slice(0, 4).map((pair) => pair.join(" ")).join(", ")}`);
  }

  function showTip(made, at, event) {
    const tip = byId("tip"), id = made.ids[at], drawing = made.pictures[id];
    tip.className = "tip";
    fill(tip, drawing ? picture(drawing, "") : null, make("strong", {}, nameOf(made, at)), id in made.films ? " – click to play" : "",
      numbers(facts(made, made.frames[chosen.moment], at).slice(0, 7)));
    tip.hidden = false;
    tip.setAttribute("data-level", id);
    const { clientX = 0, clientY = 0 } = event ?? {};
    const place = () => {
      const box = tip.getBoundingClientRect(), gap = 16;
      const left = clientX + gap + box.width > window.innerWidth ? clientX - gap - box.width : clientX + gap;
      tip.style.left = `${Math.max(8, left)}px`;
      tip.style.top = `${Math.max(8, Math.min(clientY - box.height / 2, window.innerHeight - box.height - 8))}px`;
    };
    place();
    tip.querySelector("img")?.addEventListener("load", place);
  }
  const hideTip = () => { byId("tip").hidden = true; };

  /* From a level to the next one along an axis; from none to the first. */
  function neighbour(axis, step) {
    const made = curriculum(), frame = made.frames[chosen.moment];
    const values = column(made, frame, chosen[axis]);
    const order = frame.levels.map((_, place) => place).filter((place) => values[place] !== null).sort((one, two) => values[one] - values[two]);
    if (!order.length) return;
    const now = order.findIndex((place) => frame.levels[place] === chosen.level);
    const start = now >= 0 ? now : step > 0 ? -1 : order.length;
    const next = Math.min(order.length - 1, Math.max(0, start + step));
    select(frame.levels[order[next]], false);
  }

  let timer = null;
  function stopTime() {
    window.clearInterval(timer);
    timer = null;
    byId("time-play").textContent = "▶";
    byId("time-play").setAttribute("aria-label", "Play training");
  }
  function playTime() {
    const last = curriculum().frames.length - 1;
    if (chosen.moment >= last) moveTo(0);
    byId("time-play").textContent = "❚❚";
    byId("time-play").setAttribute("aria-label", "Pause training");
    timer = window.setInterval(() => { if (chosen.moment >= last) stopTime(); else moveTo(chosen.moment + 1); }, MOMENT);
  }
  function moveTo(moment) {
    chosen.moment = moment;
    byId("time").value = moment;
    drawMoment();
    if (!byId("card").querySelector("[data-state=playing]")) drawCard(false);
  }

  /* ---- held-out levels ---- */

  let heldOutShown = null;
  function drawHeldOut() {
    const made = curriculum(), levels = made?.heldOut ?? [];
    byId("held-out").hidden = !levels.length;
    if (!levels.length) return;
    /* A film that somebody watches is not begun anew because other parts of a live page have changed. */
    const now = levels.map((level) => `${level.name} ${level.film?.source ?? level.picture}`).join();
    if (now === heldOutShown) return;
    heldOutShown = now;
    byId("held-out-lead").textContent = `Episodes of ${titleOfRun(runOf(made))} on the suite ${made.suite}, which it never trained on. One episode of each level, with sampled actions: a picture, not a statistic. It was played again for this page, in a batch of another size, which rounds otherwise: a walker or a car may fare otherwise than where it was counted.`;
    const box = byId("held-out-levels");
    box.classList.toggle("wide", levels.some((level) => level.film && level.film.width > 1.4 * level.film.height));
    fill(box, ...levels.map((level) => {
      const tile = make("div", { class: "tile" }, make("h3", {}, ...breakable(level.name)));
      if (level.film) tile.append(new Player(level.film, level.name).root);
      else if (level.picture) { const image = picture(level.picture, level.name); image.className = "screen"; tile.append(image); }
      return tile;
    }));
  }

  /* ---- results ---- */

  const suite = () => data.suites[chosen.suite];
  const visible = (entry) => !chosen.hidden.has(entry.group);
  const faint = (colour, strength) => `rgba(${[1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)).join(",")},${strength})`;
  /* Dark colours of methods are hard to see on a dark page. */
  function shade(colour) {
    if (!isDark.matches) return colour;
    const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const bright = 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2];
    const mix = bright < 130 ? Math.min(0.6, (130 - bright) / 130) : 0;
    return "#" + parts.map((part) => Math.round(part + (255 - part) * mix).toString(16).padStart(2, "0")).join("");
  }
  const swatch = (colour) => make("span", { class: "swatch", style: { background: shade(colour) } });

  function drawResults() {
    const any = data.suites.length > 0;
    byId("curves").hidden = byId("levels").hidden = !any;
    if (!any) return;
    if (chosen.suite >= data.suites.length) chosen.suite = 0;
    const several = new Set(data.suites.map((each) => each.domain)).size > 1;
    options(byId("suite"), data.suites.map((each, at) => [at, several ? `${each.domain}: ${each.name}` : each.name]), chosen.suite);
    const statistics = Object.keys(suite().groups[0].overall);
    if (!statistics.includes(chosen.statistic)) chosen.statistic = statistics[0];
    options(byId("statistic"), statistics.map((name) => [name, name === "IQM" ? "inter-quartile mean" : name]), chosen.statistic);
    byId("curve-x").value = chosen.curveX;
    drawLegend();
    drawCurves();
    drawOverall();
    drawLevels();
  }

  function drawLegend() {
    const entries = suite().groups;
    const items = entries.map((entry) => {
      const group = data.groups[entry.group];
      const box = make("input", { type: "checkbox", value: entry.group });
      box.checked = visible(entry);
      box.addEventListener("change", () => {
        if (box.checked) chosen.hidden.delete(entry.group); else chosen.hidden.add(entry.group);
        drawCurves(); drawOverall(); drawLevels(); drawTraining();
      });
      return make("label", {}, box, swatch(group.colour), group.title);
    });
    fill(byId("legend"), ...items);
  }

  function drawCurves() {
    const shown = suite().groups.filter((entry) => visible(entry) && entry.curve);
    const traces = [];
    shown.forEach((entry) => {
      const group = data.groups[entry.group], colour = shade(group.colour), at = suite().groups.indexOf(entry);
      const x = entry.curve[chosen.curveX], points = entry.curve[chosen.statistic];
      const known = points.map((_, place) => place).filter((place) => points[place][1] !== null && points[place][2] !== null);
      if (known.length > 1) traces.push({
        type: "scatter", mode: "lines", fill: "toself", fillcolor: faint(colour, 0.16), line: { width: 0 }, hoverinfo: "skip",
        x: [...known.map((place) => x[place]), ...known.map((place) => x[place]).reverse()],
        y: [...known.map((place) => points[place][2]), ...known.map((place) => points[place][1]).reverse()],
      });
      traces.push({
        type: "scatter", mode: "lines+markers", name: label(group.title), x, y: points.map((point) => point[0]),
        line: { color: colour, width: 2.5, dash: DASHES[Math.floor(at / SYMBOLS.length) % DASHES.length] }, marker: { symbol: SYMBOLS[at % SYMBOLS.length], size: 7 },
        customdata: points.map((point, place) => [number(point[1]), number(point[2]), entry.curve.runs[place]]),
        hovertemplate: "%{fullData.name}: %{y:.3f} [%{customdata[0]}, %{customdata[1]}], %{customdata[2]} runs<extra></extra>",
      });
    });
    const several = suite().groups.some((entry) => entry.seeds.length > 1);
    byId("curves-lead").textContent = `Score on ${suite().name} while training. ` + (several
      ? `The bands are 95 % intervals, point by point. ${data.intervals}`
      : "There is one run of each method, and so no interval: differences may be luck.");
    Plotly.react("curve-plot", traces, layout({ xaxis: { title: chosen.curveX === "updates" ? "student updates" : "environment steps", rangemode: "tozero" },
      yaxis: { title: `${chosen.statistic} of scores`, rangemode: "tozero" }, hovermode: "x", height: 380 }), SETTINGS);
    byId("curve-plot").setAttribute("data-shown", shown.length);
  }

  function row(cells, header = false) {
    return make("tr", {}, ...cells.map((cell, at) => {
      const isFirst = at === 0;
      const settings = isFirst ? { scope: header ? "col" : "row" } : { class: "number", ...(header ? { scope: "col" } : {}) };
      return make(header || isFirst ? "th" : "td", settings, ...(Array.isArray(cell) ? cell : [cell]));
    }));
  }

  function drawOverall() {
    const names = Object.keys(suite().groups[0].overall);
    const rows = suite().groups.filter(visible).map((entry) => {
      const group = data.groups[entry.group];
      return row([[swatch(group.colour), group.title], String(entry.seeds.length), ...names.map((name) => {
        const [value, low, high] = entry.overall[name];
        return low === null ? known(value) : `${known(value)} [${number(low)}, ${number(high)}]`;
      })]);
    });
    fill(byId("overall"), make("caption", {}, `At the end of training on ${suite().name}` + (suite().groups.some((entry) => entry.seeds.length > 1) ? `. ${data.intervals}` : "")),
      make("thead", {}, row(["Method", "Runs", ...names], true)), make("tbody", {}, ...rows));
  }

  /* A long name may be broken where a word begins in it. */
  const breakable = (name) => name.split(/(?<=[a-z])(?=[A-Z])/).flatMap((word, at) => (at ? [make("wbr"), word] : [word]));
  const broken = (name) => (name.length > 14 ? label(name).replace(/([a-z])([A-Z])(?=[^A-Z]*$)/, "$1<br>$2") : label(name));

  function drawLevels() {
    const { levels, groups } = suite(), shown = groups.filter(visible), traces = [];
    shown.forEach((entry, at) => {
      const group = data.groups[entry.group], colour = shade(group.colour);
      const y = levels.map((_, place) => place + (at - (shown.length - 1) / 2) * (0.72 / Math.max(1, shown.length)));
      const medians = entry.levels.map((level) => level.median);
      const dots = entry.levels.flatMap((level, place) => level.runs.map((value) => [value, y[place]]));
      if (entry.seeds.length > 1) traces.push({ type: "scatter", mode: "markers", hoverinfo: "skip", x: dots.map((dot) => dot[0]), y: dots.map((dot) => dot[1]), marker: { size: 5, color: faint(colour, 0.45) } });
      traces.push({
        type: "scatter", mode: "markers", name: label(group.title), x: medians, y,
        marker: { size: 10, color: colour, symbol: SYMBOLS[groups.indexOf(entry) % SYMBOLS.length] },
        error_x: { type: "data", symmetric: false, thickness: 2, width: 0, color: colour, visible: entry.seeds.length > 1,
          array: entry.levels.map((level) => (level.high ?? 0) - (level.median ?? 0)), arrayminus: entry.levels.map((level) => (level.median ?? 0) - (level.low ?? 0)) },
        customdata: levels.map((level, place) => [label(level), number(entry.levels[place].low), number(entry.levels[place].high)]),
        hovertemplate: "%{customdata[0]}<br>%{fullData.name}: %{x:.3f} [%{customdata[1]}, %{customdata[2]}]<extra></extra>",
      });
    });
    Plotly.react("level-plot", traces, layout({
      xaxis: { title: "score", rangemode: "tozero", side: "bottom" },
      yaxis: { tickvals: levels.map((_, at) => at), ticktext: levels.map(broken), range: [levels.length - 0.4, -0.6], zeroline: false, gridcolor: "rgba(0,0,0,0)" },
      shapes: levels.slice(1).map((_, at) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: at + 0.5, y1: at + 0.5, line: { color: colourOf("--grid"), width: 1 } })),
      margin: { l: 20, r: 14, t: 6, b: 44 }, height: 90 + levels.length * Math.max(34, 14 * shown.length + 14),
    }), SETTINGS);
    byId("level-plot").setAttribute("data-shown", shown.length);
    fill(byId("level-table"), make("thead", {}, row(["Level", ...shown.map((entry) => data.groups[entry.group].title)], true)),
      make("tbody", {}, ...levels.map((level, place) => row([level, ...shown.map((entry) => {
        const { median, low, high, unknown } = entry.levels[place];
        if (unknown) return `NaN (of ${number(unknown)} of the runs)`;
        return entry.seeds.length > 1 ? `${number(median)} [${number(low)}, ${number(high)}]` : number(median);
      })]))));
  }

  /* ---- while training ---- */

  function drawTraining() {
    byId("training").hidden = !data.training.length;
    if (!data.training.length) return;
    if (!data.training.some((each) => each.name === chosen.metric)) chosen.metric = data.training[0].name;
    options(byId("metric"), data.training.map((each) => [each.name, each.title]), chosen.metric);
    const metric = data.training.find((each) => each.name === chosen.metric), traces = [];
    const several = new Set(data.groups.map((group) => group.domain)).size > 1;
    for (const entry of metric.groups.filter(visible)) {
      const group = data.groups[entry.group], colour = shade(group.colour);
      if (entry.low) traces.push({ type: "scatter", mode: "lines", fill: "toself", fillcolor: faint(colour, 0.13), line: { width: 0 }, hoverinfo: "skip",
        x: [...entry.updates, ...[...entry.updates].reverse()], y: [...entry.high, ...[...entry.low].reverse()] });
      traces.push({ type: "scatter", mode: "lines", name: label(several ? `${group.title} on ${group.domain}` : group.title), x: entry.updates, y: entry.mean, line: { color: colour, width: 2.2 },
        hovertemplate: "%{fullData.name}: %{y:.3~g}<extra></extra>" });
    }
    Plotly.react("training-plot", traces, layout({ xaxis: { title: "student updates", rangemode: "tozero" }, yaxis: { title: label(metric.title.replace(/^.*: /, "")) }, hovermode: "x", height: 340 }), SETTINGS);
    byId("training-plot").setAttribute("data-shown", traces.filter((trace) => trace.name).length);
  }

  /* ---- runs and notes ---- */

  const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));

  function drawRuns() {
    const tables = data.runs.map((run) => new Map(run.config.map(([path, value]) => [path, plain(value)])));
    const paths = new Set(tables.flatMap((table) => [...table.keys()]));
    const differing = [...paths].filter((path) => path !== "seed" && new Set(data.groups.map((_, group) => tables[data.runs.findIndex((run) => run.group === group)]?.get(path) ?? "–")).size > 1);
    const first = data.groups.map((_, group) => tables[data.runs.findIndex((run) => run.group === group)]);
    fill(byId("differences"), differing.length && data.groups.length > 1 ? make("details", {}, make("summary", {}, `In which settings the ${data.groups.length} groups differ (${differing.length})`),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Settings that differ" }, make("table", {}, make("thead", {}, row(["Setting", ...data.groups.map((group) => group.title)], true)),
        make("tbody", {}, ...differing.map((path) => row([path, ...first.map((table) => table?.get(path) ?? "–")])))))) : null);
    fill(byId("run-list"), ...data.runs.map((run, at) => {
      const group = data.groups[run.group];
      const details = make("details", {}, make("summary", {}, swatch(group.colour), ` ${run.name}: ${group.title} on ${group.domain}, seed ${run.seed}, ${number(run.updates ?? run.budget)} updates${run.finished ? "" : " (not finished)"}`));
      const filled = () => {
        details.append(run.command ? command(run.command) : make("p", { class: "hint" }, "It was begun in Python, with parts that no file holds; no command trains it again."),
          command(`cenie evaluate ${quoted(run.path)}`),
          make("p", { class: "hint" }, `Directory: ${run.path}. Trained with cenie ${run.version ?? "(not known before it is finished)"}.`),
          make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Settings of ${run.name}` }, make("table", {}, make("tbody", {}, ...[...tables[at]].map(([path, value]) => row([path, value]))))));
      };
      details.addEventListener("toggle", filled, { once: true });
      return details;
    }));
  }

  function drawNotes() {
    const parts = [];
    for (const [title, lines] of [["Before comparing", data.notes], ["Skipped, and why", data.skipped], ["Left out to keep the page small", data.leftOut]]) {
      if (lines.length) parts.push(make("h3", {}, title), make("ul", {}, ...lines.map((line) => make("li", {}, line))));
    }
    parts.push(make("h3", {}, "How to read this"), make("ul", {},
      make("li", {}, "Regret is whatever score the method ranks levels by, unless that score has a name of its own; novelty is that of the method, if it has any. All are those of the last time that the level was played."),
      make("li", {}, "Scores on held-out levels lie between 0 (bad) and 1 (good): solved rates, or returns on the scale of the suite."),
      make("li", {}, "Episodes are samples: the same student may fail where it succeeded before.")));
    fill(byId("note-list"), ...parts);
  }

  function drawHeader() {
    const titles = [...new Set(data.groups.map((group) => group.title))], domains = [...new Set(data.groups.map((group) => group.domain))];
    const listed = titles.length > 5 ? `${titles.slice(0, 4).join(" · ")} and ${titles.length - 4} more` : titles.join(" · ");
    byId("title").textContent = data.groups.length ? `${domains.join(" and ")}: ${listed}` : "No runs to show";
    document.title = `${byId("title").textContent} – cenie`;
    const state = data.live ? "live; " : "";
    byId("subtitle").textContent = `${data.runs.length} run${data.runs.length === 1 ? "" : "s"} in ${data.groups.length} group${data.groups.length === 1 ? "" : "s"}, ${state}made ${data.made}`;
    byId("footer").textContent = `Made by cenie ${data.version}. This page is one file: it asks no server for anything${data.live ? " but the one on this machine that it came from" : ""}. Plots by Plotly (MIT licence).`;
  }

  function drawAll() {
    if (data.format !== FORMAT) { warn(`The data of this page has format ${data.format}, and its program reads format ${FORMAT}.`); return; }
    if (chosen.curriculum === null || chosen.curriculum >= data.curricula.length) chosen.curriculum = firstCurriculum();
    drawHeader(); drawCurriculum(); drawHeldOut(); drawResults(); drawTraining(); drawRuns(); drawNotes();
    for (const link of document.querySelectorAll("nav a")) link.hidden = byId(link.getAttribute("href").slice(1))?.hidden ?? true;
    document.body.setAttribute("data-drawn", String(Number(document.body.getAttribute("data-drawn") ?? 0) + 1));
  }

  function warn(text) { const alert = byId("alert"); alert.hidden = !text; alert.textContent = text; }

  function listen() {
    byId("curriculum-run").addEventListener("change", (event) => {
      stopTime();
      Object.assign(chosen, { curriculum: Number(event.target.value), level: null, moment: null, x: null, y: null, colour: null });
      drawCurriculum(); drawHeldOut();
    });
    for (const [id, axis] of [["axis-x", "x"], ["axis-y", "y"], ["axis-colour", "colour"]]) byId(id).addEventListener("change", (event) => { chosen[axis] = event.target.value; drawMoment(); });
    byId("time").addEventListener("input", (event) => { stopTime(); moveTo(Number(event.target.value)); });
    byId("time-play").addEventListener("click", () => (timer === null ? playTime() : stopTime()));
    byId("suite").addEventListener("change", (event) => { chosen.suite = Number(event.target.value); drawResults(); });
    byId("curve-x").addEventListener("change", (event) => { chosen.curveX = event.target.value; drawCurves(); });
    byId("statistic").addEventListener("change", (event) => { chosen.statistic = event.target.value; drawCurves(); });
    byId("metric").addEventListener("change", (event) => { chosen.metric = event.target.value; drawTraining(); });
    byId("scatter").addEventListener("keydown", (event) => {
      const moves = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", 1], ArrowDown: ["y", -1], PageUp: ["y", 20], PageDown: ["y", -20], Home: ["x", -1e9], End: ["x", 1e9] };
      if (event.key in moves) neighbour(...moves[event.key]);
      else if ((event.key === "Enter" || event.key === " ") && chosen.level !== null) select(chosen.level, true);
      else if (event.key === "Escape") { chosen.level = null; drawMoment(); drawCard(false); }
      else return;
      event.preventDefault();
    });
    const scatter = byId("scatter");
    const levelOf = (event) => (event.points[0].curveNumber === 0 ? curriculum().frames[chosen.moment].levels[event.points[0].pointNumber] : null);
    if (typeof scatter.on === "function") {
      scatter.on("plotly_hover", (event) => { const at = levelOf(event); if (at !== null) showTip(curriculum(), at, event.event); });
      scatter.on("plotly_unhover", hideTip);
      scatter.on("plotly_click", (event) => { const at = levelOf(event); if (at !== null) { hideTip(); select(at, true); } });
    }
    window.addEventListener("scroll", hideTip, { passive: true });
    for (const query of [isDark, isNarrow]) query.addEventListener("change", () => { if (!byId("curriculum").hidden) drawMoment(); if (data.suites.length) drawResults(); drawTraining(); drawRuns(); });
  }

  /* ---- while a run goes on ---- */

  function follow() {
    let seen = data.revision;
    const ask = async () => {
      try {
        const answer = await fetch(`state?seen=${encodeURIComponent(seen)}`, { cache: "no-store" });
        const state = await answer.json();
        if (state.revision !== seen) {
          const id = chosen.level === null ? null : curriculum()?.ids?.[chosen.level];
          data = await (await fetch("data.json", { cache: "no-store" })).json();
          seen = data.revision;
          const at = curriculum()?.ids?.indexOf(id) ?? -1;
          chosen.level = at < 0 ? null : at;
          const atEnd = !byId("curriculum").hidden && Number(byId("time").value) === Number(byId("time").max);
          if (atEnd) chosen.moment = null;
          drawAll();
          say("The page shows new results.");
        }
        warn(state.problem ?? "");
      } catch { warn("The server that watches the run does not answer; what you see is what it said last."); }
      window.setTimeout(ask, POLL);
    };
    window.setTimeout(ask, POLL);
  }

  function begin([found, plotting]) {
    data = JSON.parse(found);
    /* It runs when it is added; the policy of the page has its hash. */
    const library = make("script", {}, plotting);
    document.head.append(library);
    library.remove();
    drawAll();
    stopTime();
    listen();
    if (data.live) follow();
  }
  Promise.all([unpacked("data"), unpacked("plotly")]).then(begin, (error) => warn(`This browser cannot read the data of the page: ${error}`));
})();
