"use strict";
// What comes from the program gets in as text and attributes only: nothing of it is ever read as HTML.
(() => {
  const INTERVAL = 1000; // milliseconds between looks
  const WINDOW = 120; // seconds that plots show
  const RECENT = 30; // seconds for which a drop stays among what needs attention
  const ROWS = 200; // of a table
  const USUAL = ["filtered", "ttl_expired", "frame_duplicate"]; // drops that need nobody
  const SIGNS = { good: "● ", warn: "▲ ", bad: "× " };

  const byId = (id) => document.getElementById(id);
  const main = byId("main");

  /** A new element; strings among the children become text. */
  const element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  const drawing = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };

  /** Changes text only where it differs, so that what a reader has marked stays marked. */
  const write = (node, text) => {
    if (node.textContent !== text) node.textContent = text;
  };

  // Numbers and words.

  const scaled = (value, unit) => {
    if (!Number.isFinite(value)) return "–";
    const prefixes = ["", "k", "M", "G", "T"];
    let place = 0;
    while (value >= 999.5 && place < prefixes.length - 1) {
      value /= 1000;
      place += 1;
    }
    const whole = value >= 99.5 || value === 0 || (place === 0 && value >= 9.5);
    const digits = whole ? 0 : value >= 9.95 || place === 0 ? 1 : 2;
    return `${value.toFixed(digits)} ${prefixes[place]}${unit}`.replace(" /", "/").trim();
  };
  const packetRate = (value) => `${scaled(value, "")} packets/s`;
  const grouped = new Intl.NumberFormat("en");
  const percent = (share) => (Number.isFinite(share) ? `${(share * 100).toFixed(share > 0 && share < 0.1 ? 2 : 1)} %` : "–");
  const milliseconds = (us) => (us === null || us === undefined ? "–" : `${(us / 1000).toFixed(2)} ms`);
  const duration = (seconds) => {
    const s = Math.floor(seconds);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  };
  const list = (items) => {
    const all = items ?? [];
    const shown = all.slice(0, 8).join(", ");
    return all.length > 8 ? `${shown} and ${all.length - 8} more` : shown || "–";
  };
  const sum = (items, value) => (items ?? []).reduce((total, item) => total + value(item), 0);

  // The last look, the one before, and the seconds between them by the program's own clock.

  let now = null;
  let was = null;
  let seconds = 0;
  let meanings = {};
  const history = new Map();

  const time = () => now.uptime_ms / 1000;

  /** Remembers a value for plots, and returns it. */
  const record = (key, value) => {
    if (!history.has(key)) history.set(key, []);
    history.get(key).push([time(), value]);
    return value;
  };
  const forget = () => {
    for (const [key, points] of history) {
      while (points.length && points[0][0] < time() - WINDOW) points.shift();
      if (!points.length) history.delete(key);
    }
  };
  /** Mean of the values of the last seconds. */
  const lately = (key) => {
    const points = (history.get(key) ?? []).filter(([at, value]) => at > time() - RECENT && Number.isFinite(value));
    return points.length ? sum(points, (point) => point[1]) / points.length : 0;
  };

  /** Per second, by what `value` says of a document or of a part of it. */
  const rate = (value, part = now, before = was) => {
    if (!before || seconds <= 0) return NaN;
    return Math.max(0, value(part) - value(before)) / seconds;
  };
  /** The parts of a list, with what they were at the last look. */
  const parts = (items, key) => {
    const earlier = new Map();
    for (const item of (was && items(was)) ?? []) earlier.set(key(item), item);
    return (items(now) ?? []).map((item) => [item, earlier.get(key(item)) ?? null, key(item)]);
  };

  // Cells of tables.

  const plain = (text) => ({ text: text === null || text === undefined || text === "" ? "–" : String(text) });
  const wide = (text) => ({ ...plain(text), wide: true });
  const number = (value, text) => ({ text, sort: Number.isFinite(value) ? value : -1 });
  const count = (value) => number(value, grouped.format(value));
  const id = (value) => number(value, String(value));
  const bits = (bytes) => number(bytes, scaled(bytes * 8, "bit/s"));
  const packets = (value) => number(value, scaled(value, "/s"));
  const state = (tone, text) => ({ text: (SIGNS[tone] ?? "") + text, tone });
  const plot = (...keys) => ({ text: "", spark: keys, sort: lately(keys[0]) });

  // Parts of the page. Each is made when it is first shown, and stays.

  const made = new Map();
  const once = (id, make) => {
    if (!made.has(id)) made.set(id, make());
    return made.get(id);
  };

  const section = (id, title) =>
    once(id, () => {
      const heading = element("h2", { id: `${id}-title` }, title);
      const node = element("section", { id, "aria-labelledby": `${id}-title` }, heading);
      main.append(node);
      return node;
    });

  /** A line through the points of a series, in a box of WINDOW times 100. */
  const line = (points, most) => {
    let path = "";
    let pen = "M";
    for (const [at, value] of points) {
      if (!Number.isFinite(value)) {
        pen = "M";
        continue;
      }
      path += `${pen}${(WINDOW - (time() - at)).toFixed(1)} ${(98 - (value / most) * 94).toFixed(1)}`;
      pen = "L";
    }
    return path;
  };
  const most = (keys) => {
    const values = keys.flatMap((key) => (history.get(key) ?? []).map((point) => point[1]).filter(Number.isFinite));
    return Math.max(0, ...values);
  };

  const spark = (cell, keys) => {
    if (!cell.firstElementChild) {
      const picture = drawing("svg", { class: "spark", viewBox: `0 0 ${WINDOW} 100`, preserveAspectRatio: "none", "aria-hidden": "true" });
      for (const name of ["a", "b"].slice(0, keys.length)) picture.append(drawing("path", { class: name }));
      cell.append(picture);
    }
    const highest = most(keys) || 1;
    keys.forEach((key, place) => {
      cell.firstElementChild.children[place]?.setAttribute("d", line(history.get(key) ?? [], highest));
    });
  };

  const compare = (a, b) => {
    const [x, y] = [a.sort ?? a.text, b.sort ?? b.text];
    return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
  };

  const head = (table, columns, view) => {
    const row = element("tr");
    columns.forEach((name, place) => {
      const cell = element("th", { scope: "col" });
      if (name.startsWith(">")) cell.className = "right";
      const button = element("button", { type: "button" }, name.replace(">", ""));
      button.addEventListener("click", () => {
        // Numbers from the largest down at first, text from A.
        const first = name.startsWith(">") ? -1 : 1;
        view.direction = view.by === place ? -view.direction : first;
        view.by = place;
        for (const other of row.children) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", view.direction > 0 ? "ascending" : "descending");
        view.show();
      });
      cell.append(button);
      row.append(cell);
    });
    table.append(element("thead", {}, row));
  };

  /**
   * A table: a name per column, to the right with ">"; rows as pairs of a key and cells. Without rows, what `empty` says;
   * without that the whole section is hidden.
   */
  const table = (id, title, columns, rows, empty = null) => {
    const node = section(id, title);
    node.hidden = !rows.length && empty === null;
    const view = once(`${id}-table`, () => {
      const grid = element("table");
      const fresh = { by: null, direction: 1, body: element("tbody"), note: element("p", { class: "note" }), rows: new Map() };
      head(grid, columns, fresh);
      grid.append(fresh.body);
      fresh.box = element("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": `${id}-title` }, grid);
      node.append(fresh.box, fresh.note);
      return fresh;
    });
    view.show = () => {
      let shown = rows;
      if (view.by !== null) shown = [...rows].sort((a, b) => view.direction * compare(a[1][view.by], b[1][view.by]));
      shown = shown.slice(0, ROWS);
      const keys = new Set(shown.map(([key]) => key));
      for (const [key, row] of view.rows) {
        if (!keys.has(key)) {
          row.remove();
          view.rows.delete(key);
        }
      }
      shown.forEach(([key, cells], place) => {
        let row = view.rows.get(key);
        if (!row) {
          row = element("tr");
          cells.forEach((_, column) => row.append(column ? element("td") : element("th", { scope: "row" })));
          view.rows.set(key, row);
        }
        cells.forEach((cell, column) => {
          const place = row.children[column];
          const look = [cell.tone, cell.wide && "wide", columns[column].startsWith(">") && "right"].filter(Boolean).join(" ");
          if (place.className !== look) place.className = look;
          if (cell.spark) spark(place, cell.spark);
          else write(place, cell.text);
        });
        if (view.body.children[place] !== row) view.body.insertBefore(row, view.body.children[place] ?? null);
      });
      view.box.hidden = !rows.length;
      const more = rows.length - shown.length;
      write(view.note, rows.length ? (more ? `and ${more} more` : "") : (empty ?? ""));
    };
    view.show();
  };

  /** What needs attention, as `find` tells it. */
  const problems = (find) => {
    const told = { bad: [], warn: [] };
    const tell = (tone) => (what, advice = "") => told[tone].push([tone, what, advice]);
    find(tell("bad"), tell("warn"));
    const node = section("attention", "Needs attention");
    const items = once("attention-list", () => {
      const items = element("ul", { class: "problems" });
      node.append(items);
      return items;
    });
    const order = [...told.bad, ...told.warn];
    if (!order.length) order.push(["good", "Nothing", ""]);
    const text = JSON.stringify(order);
    if (items.shown === text) return;
    items.shown = text;
    items.replaceChildren(
      ...order.map(([tone, what, advice]) => {
        const item = element("li", {}, element("b", { class: tone }, SIGNS[tone] + what));
        if (advice) item.append(element("span", {}, advice));
        return item;
      }),
    );
  };

  /** Large numbers: name, value, and what is said below it. */
  const tiles = (node, items) => {
    const box = once("tiles", () => {
      const box = element("dl", { class: "tiles" });
      for (const [name] of items) {
        const [value, more] = [element("dd", { class: "main" }), element("dd", { class: "more" })];
        box.append(element("div", {}, element("dt", {}, name), value, more));
      }
      node.append(box);
      return box;
    });
    items.forEach(([, value, more], place) => {
      const tile = box.children[place];
      write(tile.children[1], value);
      write(tile.children[2], more);
    });
  };

  /** A plot of series: class, name, key. */
  const figure = (node, title, unit, factor, series) => {
    const plot = once(`plot-${title}`, () => {
      const caption = element("figcaption", {}, element("div", {}, title));
      const picture = drawing("svg", { role: "img", viewBox: `0 0 ${WINDOW} 100`, preserveAspectRatio: "none" });
      picture.append(drawing("path", { class: "grid", d: `M0 4H${WINDOW}M0 51H${WINDOW}M0 98H${WINDOW}` }));
      const lines = series.map(([look, name]) => {
        const value = element("b");
        caption.append(element("span", {}, element("i", { class: look }), `${name} `, value));
        const path = drawing("path", { class: look });
        picture.append(path);
        return [path, value];
      });
      const top = element("span", { class: "top" });
      const area = element("div", { class: "area" }, top, picture, element("span", { class: "old" }, "2 min ago"), element("span", { class: "new" }, "now"));
      once("plots", () => node.appendChild(element("div", { class: "plots" }))).append(element("figure", { class: "plot" }, caption, area));
      return { picture, lines, top };
    });
    const keys = series.map(([, , key]) => key);
    const highest = most(keys);
    // The scale ends at 1, 2, 3 or 5 times a power of ten.
    const power = 10 ** Math.floor(Math.log10(Math.max(highest * factor, 1)));
    const end = [1, 2, 3, 5, 10].map((step) => step * power).find((step) => step >= highest * factor) ?? 1;
    write(plot.top, scaled(end, unit));
    const told = series.map(([, name, key], place) => {
      const points = history.get(key) ?? [];
      const last = points.length ? points[points.length - 1][1] * factor : NaN;
      plot.lines[place][0].setAttribute("d", line(points, end / factor));
      write(plot.lines[place][1], scaled(last, unit));
      return `${name} ${scaled(last, unit)}`;
    });
    plot.picture.setAttribute("aria-label", `${title}, last two minutes; now ${told.join(", ")}`);
  };

  const title = (kind, about) => {
    write(byId("name"), `${kind} ${now.id}`);
    document.title = `${now.id} – sig`;
    write(byId("about"), [...about, `up ${duration(time())}`, `sig ${now.version}`].filter(Boolean).join(" · "));
  };

  const meaning = (of, reason) => meanings[of]?.[reason] ?? {};

  // The gateway.

  const name = (remote) => `${remote.isd_as} ${remote.gateway} ${remote.session}`;

  /** Paths that are watched, and those that only the configuration names; with what sessions send on them. */
  const pathsOf = (document) => {
    const rows = [];
    const known = new Map();
    for (const remote of document.control?.ases ?? []) {
      for (const watched of remote.paths) {
        const row = { key: `${remote.isd_as} ${watched.fingerprint}`, isd_as: remote.isd_as, watched, used: [], packets: 0, bytes: 0 };
        known.set(row.key, row);
        rows.push(row);
      }
    }
    for (const remote of document.remotes) {
      for (const path of remote.paths) {
        const key = `${remote.isd_as} ${path.fingerprint}`;
        let row = path.fingerprint && known.get(key);
        if (!row) {
          row = { key: `${name(remote)} ${path.name}`, isd_as: remote.isd_as, watched: null, used: [], packets: 0, bytes: 0 };
          rows.push(row);
        }
        row.used.push({ ...path, session: remote.session });
        row.packets += path.packets_sent;
        row.bytes += path.bytes_sent;
      }
    }
    return rows;
  };

  /** "Hops: [1-ff00:0:110 1>2 1-ff00:0:111] MTU: …" without the rest. */
  const hops = (path) => path.text.replace(/^Hops: \[|\] MTU: .*/g, "");

  const pathState = ({ watched, used }) => {
    if (!used.length && watched?.rejected_by.length) return state("", "rejected by policy");
    if (used.some((path) => path.expired)) return state("bad", "expired");
    if (watched && !watched.alive) return state("bad", watched.revoked ? "revoked" : "dead");
    if (used.some((path) => !path.next_hop_mac)) return state("bad", "next hop silent");
    if (watched?.revoked) return state("warn", "in doubt: revoked");
    if (used.some((path) => path.problem)) return state("warn", "in use, with a problem");
    return state("good", used.length ? "in use" : "standby");
  };

  const expiry = (path) => {
    if (!path?.expires_at) return "never";
    const left = path.expires_at - Date.now() / 1000;
    return left > 0 ? `in ${duration(left)}` : "expired";
  };

  const sessionState = ({ probing, paths }) => {
    if (!probing) return paths.some((path) => path.next_hop_mac && !path.expired) ? state("good", "ready") : state("bad", "no path");
    if (!probing.healthy) return state("bad", "no answer");
    return probing.paths_alive ? state("good", "healthy") : state("warn", "healthy, no path alive");
  };

  const gatewayProblems = (paths, bad, warn) => {
    if (!now.workers.length) bad("The data plane is not running", "See the log.");
    for (const port of now.ports) if (!port.up) bad(`${port.interface} is down`, `ip link set ${port.interface} up; or its cable`);
    for (const left of now.lan.left_out) warn(`${left.interface} is not in service`, left.reason);
    for (const remote of now.remotes) {
      const session = `Session ${remote.session} with ${remote.gateway} of ${remote.isd_as}`;
      if (remote.probing && !remote.probing.healthy) bad(`${session}: the gateway does not answer`, "See its paths, and whether it runs.");
      if (!remote.paths.length) bad(`${session} has no path`);
    }
    for (const { isd_as, watched, used } of paths) {
      for (const path of used) {
        const which = `${isd_as} path ${watched ? hops(watched) : path.name}`;
        if (path.expired) bad(`${which} has expired`, now.control ? "" : "Replace it and run: sig reload");
        else if (!path.next_hop_mac) bad(`${which}: next hop ${path.next_hop} does not answer`, path.problem ?? "Is the router up and on the underlay? ip neighbour");
        else if (path.problem) warn(`${which}: ${path.problem}`);
        else if (!now.control && path.expires_at && path.expires_at - Date.now() / 1000 < 3600) warn(`${which} expires ${expiry(path)}`, "Unless the gateway renews it, replace it and run: sig reload");
      }
    }
    const control = now.control;
    if (control && !control.daemon.reachable) bad(`The SCION daemon at ${control.daemon.address} does not answer`, control.daemon.problem ?? "");
    for (const remote of control?.ases ?? []) {
      if (remote.discovery_problem) warn(`${remote.isd_as}: gateways are not found`, remote.discovery_problem);
      if (remote.paths_problem) warn(`${remote.isd_as}: no paths`, remote.paths_problem);
      for (const gateway of remote.gateways) if (gateway.fetch_problem) warn(`${remote.isd_as} ${gateway.control}: no prefixes`, gateway.fetch_problem);
    }
    for (const site of control?.sites ?? []) {
      for (const of of site.classes) if (of.current === null) warn(`${site.isd_as}: class ${of.condition} has no session`, `Its packets to ${list(site.prefixes)} are dropped.`);
    }
    for (const problem of now.fast_path.on ? now.fast_path.problems : []) warn("Not all packets take the fast path", problem);
    if (now.underlay.unchecked) warn("Frames are accepted from any address", now.underlay.unchecked);
    for (const address of now.underlay.refused) warn(`Frames from ${address} are dropped`, "If it is a border router of this AS, add it to underlay_sources in [dataplane].");
    for (const problem of now.chains?.problems ?? []) warn("Service chains", problem);
    for (const one of now.chains?.functions ?? []) if (!one.is_up) bad(`Function ${one.name} is down`, one.why_down ?? "");
    for (const queue of now.queues) {
      const lost = lately(`full ${queue.worker} ${queue.interface} ${queue.queue}`);
      if (lost > 0) bad(`Worker ${queue.worker} cannot keep up: ${scaled(lost, "/s")} lost at ${queue.interface}, queue ${queue.queue}`, "More workers, more queues, or another CPU.");
    }
    for (const reason of new Set(now.drops.map((drop) => drop.reason))) {
      const lost = lately(`drop ${reason}`);
      const { meaning: what, remedy } = meaning("drops", reason);
      if (lost > 0.5 && !USUAL.includes(reason)) warn(`${scaled(lost, "/s")} dropped: ${reason}`, remedy || what || "");
    }
  };

  const dropKey = (drop) => `${drop.reason} ${drop.place}`;
  /** One reason may be told in several parts. */
  const dropped = ({ drops }) => {
    const total = new Map();
    for (const drop of drops) total.set(dropKey(drop), { ...drop, count: drop.count + (total.get(dropKey(drop))?.count ?? 0) });
    return [...total.values()];
  };

  const gateway = () => {
    title("Gateway", [now.isd_as, now.data_addr, `serves ${list(now.prefixes)}`]);
    // A reason that was not there before has been counted from 0.
    const none = was && { count: 0 };
    const drops = parts(dropped, dropKey).map(([drop, before, key]) => [key, drop, rate((d) => d.count, drop, before ?? none)]);
    for (const reason of new Set(drops.map(([, drop]) => drop.reason))) {
      record(`drop ${reason}`, sum(drops.filter(([, drop]) => drop.reason === reason), ([, , rate]) => rate));
    }
    for (const [queue, before, key] of parts((d) => d.queues, (q) => `${q.worker} ${q.interface} ${q.queue}`)) {
      record(`full ${key}`, rate((q) => q.rx_ring_full, queue, before));
    }
    const paths = pathsOf(now);
    problems((bad, warn) => gatewayProblems(paths, bad, warn));

    const out = record("out bytes", rate((d) => d.counters.packet_bytes_sent));
    const into = record("in bytes", rate((d) => d.counters.packet_bytes_received));
    const outPackets = record("out packets", rate((d) => d.counters.packets_sent));
    const inPackets = record("in packets", rate((d) => d.counters.packets_received));
    const lost = record("drops", rate((d) => sum(d.drops, (drop) => drop.count)));
    const fast = (d) => d.fast_path.packets_sent + d.fast_path.packets_delivered;
    const all = (d) => d.counters.packets_sent + d.counters.packets_received;
    const node = section("traffic", "Traffic");
    tiles(node, [
      ["To remotes", scaled(out * 8, "bit/s"), packetRate(outPackets)],
      ["From remotes", scaled(into * 8, "bit/s"), packetRate(inPackets)],
      ["Fast path", now.fast_path.on ? percent(Math.min(rate(fast) / rate(all), 1)) : "off", now.fast_path.on ? `of packets; ${percent(fast(now) / all(now))} since the start` : "workers send and deliver all packets"],
      ["Drops", scaled(lost, "/s"), `${grouped.format(sum(now.drops, (drop) => drop.count))} since the start`],
    ]);
    figure(node, "Bits per second", "bit/s", 8, [["a", "to remotes", "out bytes"], ["b", "from remotes", "in bytes"]]);
    figure(node, "Packets per second", "/s", 1, [["a", "to remotes", "out packets"], ["b", "from remotes", "in packets"]]);
    figure(node, "Drops per second", "/s", 1, [["c", "drops", "drops"]]);

    remotes();
    pathTable(paths);
    table("drops", "Drops", ["reason", "where", ">now", ">total", "meaning", "likely cause, remedy"], drops.filter(([, drop]) => drop.count).map(([key, drop, rate]) => {
      const { meaning: what, remedy } = meaning("drops", drop.reason);
      return [key, [plain(drop.reason), plain(drop.place), packets(rate), count(drop.count), wide(what), wide(remedy)]];
    }), "None.");
    classes();
    chains();
    ports();
  };

  const remotes = () => {
    const seen = new Set();
    const watched = new Map((now.control?.ases ?? []).map((remote) => [remote.isd_as, remote.paths]));
    const rows = parts((d) => d.remotes, name).map(([remote, before, key]) => {
      const used = (watched.get(remote.isd_as) ?? []).filter((path) => path.used_by.includes(remote.session));
      const best = used.filter((path) => path.latency_us !== null).sort((a, b) => a.latency_us - b.latency_us)[0];
      const sent = record(`out ${key}`, rate((r) => r.sent.packet_bytes, remote, before));
      // What comes in is counted once for all sessions with a gateway.
      const from = `${remote.isd_as} ${remote.gateway}`;
      const first = !seen.has(from);
      seen.add(from);
      const received = first ? record(`in ${key}`, rate((r) => r.packet_bytes_received, remote, before)) : NaN;
      const { probing } = remote;
      const loss = used.length ? Math.max(...used.map((path) => path.loss_ppm ?? 0)) / 1e6 : NaN;
      return [key, [
        plain(remote.isd_as),
        plain(remote.gateway),
        id(remote.session),
        sessionState(remote),
        plain(probing ? `${probing.paths_alive} alive, ${probing.paths_timeout} dead, ${probing.paths_rejected} rejected` : `${remote.paths.length} configured`),
        number(best?.latency_us, milliseconds(best?.latency_us)),
        number(loss, percent(loss)),
        packets(rate((r) => r.sent.packets, remote, before)),
        bits(sent),
        first ? packets(rate((r) => r.packets_received, remote, before)) : number(-1, "see above"),
        first ? bits(received) : number(-1, ""),
        plot(`out ${key}`, ...(first ? [`in ${key}`] : [])),
        wide(list(remote.prefixes)),
      ]];
    });
    const empty = now.control ? "The control plane has found no remote gateway with prefixes yet." : "Add a [[remote]] to the configuration; \"sig config sample\" shows one.";
    table("remotes", "Remotes", ["ISD-AS", "gateway", ">session", "state", "paths", ">round trip", ">loss", ">packets sent", ">bits sent", ">packets received", ">bits received", "two minutes", "prefixes"], rows, empty);
  };

  const pathTable = (paths) => {
    const earlier = new Map((was ? pathsOf(was) : []).map((row) => [row.key, row]));
    const rows = paths.map((row) => {
      const before = earlier.get(row.key) ?? null;
      const { watched, used } = row;
      const loss = (watched?.loss_ppm ?? NaN) / 1e6;
      return [row.key, [
        plain(row.isd_as),
        pathState(row),
        plain(list(used.map((path) => path.session))),
        number(watched?.latency_us, milliseconds(watched?.latency_us)),
        number(watched?.jitter_us, milliseconds(watched?.jitter_us)),
        number(loss, percent(loss)),
        packets(rate((p) => p.packets, row, before)),
        bits(rate((p) => p.bytes, row, before)),
        id(watched?.mtu ?? used[0]?.mtu),
        plain(expiry(watched ?? used[0])),
        plain(used[0]?.next_hop),
        wide(watched ? hops(watched) : used[0]?.name),
      ]];
    });
    table("paths", "Paths", ["ISD-AS", "state", "sessions", ">round trip", ">jitter", ">loss", ">packets sent", ">bits sent", ">MTU", "expires", "next hop", "path"], rows, "No usable path to any remote.");
  };

  const classes = () => {
    const rows = (now.control?.sites ?? []).flatMap((site) => site.classes.map((of) => [
      `${site.isd_as} ${of.id}`,
      [plain(site.isd_as), plain(of.condition), of.current === null ? state("bad", "none: dropped") : state("good", `session ${of.current}`), plain(list(of.sessions)), count(of.session_changes), wide(list(site.prefixes))],
    ]));
    table("classes", "Traffic classes", ["ISD-AS", "condition", "goes to", "may go to", ">changes", "prefixes"], rows);
  };

  const chains = () => {
    const rules = parts((d) => d.rules, (rule) => rule.name).map(([rule, before, key]) => [key, [
      plain(rule.name), plain(rule.action), plain(rule.target),
      packets(rate((r) => r.packets_to_remotes, rule, before)), packets(rate((r) => r.packets_from_remotes, rule, before)),
      count(rule.packets_to_remotes + rule.packets_from_remotes), wide(rule.class),
    ]]);
    table("rules", "Rules", ["rule", "action", "to", ">to remotes", ">from remotes", ">total", "class"], rules);
    const functions = parts((d) => d.chains?.functions, (one) => one.name).map(([one, before, key]) => [key, [
      plain(one.name), one.is_up ? state("good", "up") : state("bad", "down"), plain(one.on_failure),
      packets(rate((f) => f.packets_returned, one, before)), count(one.packets_returned), wide(one.why_down),
    ]]);
    table("functions", "Functions of service chains", ["function", "state", "if it fails", ">returned", ">total", "why it is down"], functions);
    const ways = [
      ...parts((d) => d.chains?.policies, (one) => `policy ${one.name}`).map((row) => [...row, row[0].name, list(row[0].segments)]),
      ...parts((d) => d.chains?.sids, (one) => `SID ${one.sid}`).map((row) => [...row, `${row[0].sid} ${row[0].behavior}`, row[0].target]),
    ].map(([one, before, key, what, to]) => [key, [
      plain(what), plain(to), packets(rate((o) => o.packets, one, before)), bits(rate((o) => o.bytes, one, before)), count(one.packets),
    ]]);
    table("sids", "Policies and SIDs", ["policy or SID", "leads to", ">packets", ">bits", ">total"], ways);
    const refused = parts((d) => d.chains?.refused, (one) => one[0]).filter(([one]) => one[1]).map(([one, before, key]) => [key, [
      plain(one[0]), packets(rate((o) => o[1], one, before)), count(one[1]), wide(meaning("srv6", one[0]).meaning),
    ]]);
    table("refused", "Not forwarded by the SR node itself", ["reason", ">now", ">total", "meaning"], refused);
  };

  const ports = () => {
    const rows = parts((d) => d.ports, (port) => `${port.role} ${port.interface}`).map(([port, before, key]) => [key, [
      plain(port.interface), plain(port.role), port.up ? state("good", "up") : state("bad", "down"), plain(port.driver),
      plain(port.mode), plain(port.zero_copy ? "zero-copy" : "copy"), id(port.queues), id(port.mtu),
      packets(rate((p) => p.rx_packets, port, before)), packets(rate((p) => p.tx_packets, port, before)), count(port.rx_packets), count(port.tx_packets),
    ]]);
    table("ports", "Ports", ["interface", "role", "link", "driver", "XDP", "buffers", ">queues", ">MTU", ">received", ">sent", ">total received", ">total sent"], rows, "None: check underlay and lan in [dataplane], then run \"sig doctor\".");
    const queues = parts((d) => d.queues, (queue) => `${queue.worker} ${queue.interface} ${queue.queue}`).map(([queue, before, key]) => [key, [
      plain(queue.interface), id(queue.queue), id(queue.worker),
      packets(rate((q) => q.rx_packets, queue, before)), packets(rate((q) => q.tx_packets, queue, before)), packets(rate((q) => q.wakeups, queue, before)),
      { ...count(queue.rx_ring_full), tone: queue.rx_ring_full ? "warn" : "" }, count(queue.fill_ring_empty), count(queue.rx_refused), count(queue.tx_queue_full ?? 0),
    ]]);
    table("queues", "Queues", ["interface", ">queue", ">worker", ">received", ">sent", ">wake-ups", ">worker too slow", ">no buffer", ">refused", ">send queue full"], queues);
    const workers = parts((d) => d.workers, (worker) => worker.number).map(([worker, before, key]) => [key, [
      id(worker.number), plain(worker.cpu ?? "any"), packets(rate((w) => w.rx_packets, worker, before)), packets(rate((w) => w.tx_packets, worker, before)),
      packets(rate((w) => w.packets_straight, worker, before)), packets(rate((w) => w.packets_via_helper, worker, before)), packets(rate((w) => w.sleeps, worker, before)),
    ]]);
    table("workers", "Workers", [">worker", ">CPU", ">received", ">sent", ">directly to the LAN", ">by way of the kernel", ">sleeps"], workers);
  };

  // The border router.

  const KINDS = { in: "to hosts", out: "from hosts", in_transit: "to siblings", out_transit: "from siblings", br_transit: "link to link" };
  const traffic = (of, kinds, what) => sum(of.traffic.filter((one) => kinds(one.kind)), (one) => sum(one.sizes, (size) => size[what]));
  const isInput = (kind) => kind === "input";
  const isOutput = (kind) => kind !== "input";
  const label = (of) => (of.interface === 0 ? "internal" : String(of.interface));

  const linkState = (of) => {
    if (of.bfd?.flaps) return state("warn", "up, not yet used");
    return of.up ? state("good", "up") : state("bad", "down");
  };
  const bfdState = (bfd) => {
    if (!bfd) return plain("");
    return state(bfd.state === "up" ? (bfd.flaps ? "warn" : "good") : "bad", bfd.flaps ? "up, flapping" : bfd.state);
  };

  const routerProblems = (bad, warn) => {
    for (const one of now.interfaces) {
      const which = `Interface ${label(one)} to ${one.neighbour}`;
      if (one.bfd?.flaps) warn(`${which} was down too often lately`, "It is used again once it has been stable for a while.");
      else if (!one.up) bad(`${which} is down`, `The router at ${one.remote} sends no BFD packets, or receives none of ours.`);
      if (one.problem) warn(which, one.problem);
    }
    for (const one of now.siblings) {
      if (!one.up) bad(`Router ${one.name} at ${one.internal} does not answer`);
      if (one.problem) warn(`Router ${one.name}`, one.problem);
    }
    if (!now.fast_path) warn("There is no fast path", "The slow path forwards all packets: [xdp] mode is \"off\".");
    for (const one of now.fast_path?.devices ?? []) if (!one.transmits) warn(`${one.name} only receives in the fast path`, "Packets to it take the slow path.");
    const lost = new Map();
    for (const one of now.interfaces) for (const of of one.reasons) lost.set(of.reason, (lost.get(of.reason) ?? 0) + lately(`drop ${one.interface} ${of.reason}`));
    for (const [reason, rate] of lost) {
      const { meaning: what, remedy } = meaning("drops", reason);
      if (rate > 0.5) warn(`${scaled(rate, "/s")} dropped: ${reason}`, remedy || what || "");
    }
  };

  const router = () => {
    title("Border router", [now.isd_as, now.internal]);
    const links = parts((d) => d.interfaces, (one) => one.interface);
    const reasons = links.flatMap(([one, before]) => one.reasons.map((reason) => {
      // Reasons without a packet are left out: this is the first.
      const earlier = before && (before.reasons.find((other) => other.reason === reason.reason) ?? { fast: 0, slow: 0, dropped: 0 });
      record(`drop ${one.interface} ${reason.reason}`, rate((r) => r.dropped, reason, earlier));
      return [one, reason, earlier];
    }));
    problems(routerProblems);

    const total = (kinds, what) => (d) => sum(d.interfaces, (one) => traffic(one, kinds, what));
    const of = (what) => (d) => sum(d.interfaces, (one) => sum(one.reasons, (reason) => reason[what]));
    const into = record("in bytes", rate(total(isInput, "bytes")));
    const out = record("out bytes", rate(total(isOutput, "bytes")));
    const inPackets = record("in packets", rate(total(isInput, "packets")));
    const outPackets = record("out packets", rate(total(isOutput, "packets")));
    const slow = record("slow", rate(of("slow")));
    const lost = record("drops", rate(of("dropped")));
    const node = section("traffic", "Traffic");
    tiles(node, [
      ["Received", scaled(into * 8, "bit/s"), packetRate(inPackets)],
      ["Sent", scaled(out * 8, "bit/s"), packetRate(outPackets)],
      ["Slow path", scaled(slow, "/s"), now.fast_path ? "packets that need more than forwarding" : "there is no fast path"],
      ["Drops", scaled(lost, "/s"), `${grouped.format(of("dropped")(now))} since the start`],
    ]);
    figure(node, "Bits per second", "bit/s", 8, [["a", "received", "in bytes"], ["b", "sent", "out bytes"]]);
    figure(node, "Packets per second", "/s", 1, [["a", "received", "in packets"], ["b", "sent", "out packets"]]);
    figure(node, "Slow path and drops per second", "/s", 1, [["a", "slow path", "slow"], ["c", "drops", "drops"]]);

    const rows = links.map(([one, before, key]) => {
      const per = (kinds, what) => rate((i) => traffic(i, kinds, what), one, before);
      record(`in ${key}`, per(isInput, "bytes"));
      record(`out ${key}`, per(isOutput, "bytes"));
      return [key, [
        { ...plain(label(one)), sort: one.interface }, plain(one.neighbour), plain(one.link_type || "inside"), linkState(one), bfdState(one.bfd),
        count(one.bfd?.changes ?? 0), packets(per(isInput, "packets")), bits(per(isInput, "bytes")), packets(per(isOutput, "packets")), bits(per(isOutput, "bytes")),
        packets(rate((i) => sum(i.reasons, (reason) => reason.dropped), one, before)), plot(`in ${key}`, `out ${key}`),
        plain(one.local), plain(one.remote), plain(one.next_hop_mac),
      ]];
    });
    table("links", "Interfaces", ["interface", "neighbour", "type", "link", "BFD", ">changes", ">packets received", ">bits received", ">packets sent", ">bits sent", ">dropped", "two minutes", "local", "remote", "MAC"], rows);
    const siblings = now.siblings.map((one) => [one.name, [
      plain(one.name), plain(one.internal), one.up ? state("good", "up") : state("bad", "down"), bfdState(one.bfd), count(one.bfd?.changes ?? 0), plain(one.next_hop_mac), plain(list(one.interfaces)),
    ]]);
    table("siblings", "Other routers of the AS", ["name", "address", "state", "BFD", ">changes", "MAC", "interfaces"], siblings);
    table("drops", "Slow path and drops", ["interface", "reason", ">slow path", ">dropped", ">total slow path", ">total dropped", "meaning", "likely cause, remedy"], reasons.map(([one, reason, earlier]) => {
      const { meaning: what, remedy } = meaning("drops", reason.reason);
      return [`${one.interface} ${reason.reason}`, [
        plain(label(one)), plain(reason.reason), packets(rate((r) => r.slow, reason, earlier)), packets(rate((r) => r.dropped, reason, earlier)),
        count(reason.slow), { ...count(reason.dropped), tone: reason.dropped ? "warn" : "" }, wide(what), wide(remedy),
      ]];
    }), "None.");
    const kinds = links.map(([one, before, key]) => [key, [
      { ...plain(label(one)), sort: one.interface }, ...Object.keys(KINDS).map((kind) => packets(rate((i) => traffic(i, (other) => other === kind, "packets"), one, before))),
    ]]);
    table("kinds", "Sent, by kind", ["interface", ...Object.values(KINDS).map((kind) => `>${kind}`)], kinds);
    const devices = (now.fast_path?.devices ?? []).map((one) => [one.name, [
      plain(one.name), plain(one.mode), one.transmits ? state("good", "sends and receives") : state("warn", "receives only"), count(one.not_sent),
    ]]);
    table("devices", "Devices of the fast path", ["device", "XDP", "fast path", ">not sent"], devices);
    const services = now.services.filter((one) => one.instances.length).map((one) => [one.service, [plain(one.service), wide(list(one.instances))]]);
    table("services", "Services", ["service", "instances"], services);
  };

  // Looking.

  const live = byId("live");
  const pause = byId("pause");
  const isPaused = () => pause.getAttribute("aria-pressed") === "true";
  const say = (tone, text) => {
    write(live, (SIGNS[tone] ?? "") + text);
    live.className = tone;
  };

  const fetched = async (name) => {
    const answer = await fetch(name, { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    return answer.json();
  };

  const show = (document) => {
    // Another version has another page.
    if (now && ["kind", "id", "version"].some((key) => document[key] !== now[key])) return location.reload();
    if (now && document.uptime_ms < now.uptime_ms) {
      // It has been restarted.
      now = null;
      history.clear();
    }
    was = now;
    now = document;
    seconds = was ? (now.uptime_ms - was.uptime_ms) / 1000 : 0;
    if (now.kind === "router") router();
    else gateway();
    forget();
  };

  // Looks one after the other, unless nobody looks at the page.
  let timer = null;
  const look = async () => {
    if (document.hidden || isPaused()) {
      timer = null;
      return;
    }
    try {
      if (!Object.keys(meanings).length) meanings = await fetched("reasons.json");
      const status = await fetched("status.json");
      if (!isPaused()) {
        show(status);
        say("good", "live");
      }
    } catch (error) {
      say("bad", `no answer (${error.message}); trying again`);
    }
    timer = setTimeout(look, INTERVAL);
  };
  const again = () => {
    if (timer === null) timer = setTimeout(look);
  };

  pause.addEventListener("click", () => {
    pause.setAttribute("aria-pressed", String(!isPaused()));
    if (isPaused()) say("", "paused");
    else again();
  });
  document.addEventListener("visibilitychange", again);
  again();
})();
