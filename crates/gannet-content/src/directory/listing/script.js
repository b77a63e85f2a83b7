
"use strict";
(() => {
  // Rows added at once: few enough for a moment, enough to fill any screen.
  const CHUNK = 400;
  const table = document.querySelector("table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const parent = body.querySelector(".u");
  const footer = document.querySelector("footer");
  const usual = { name: false, size: true, modified: true };
  const cut = document.querySelector("#cut");
  let isWhole = !cut;
  let entries, shown, count, loading, filter, status;

  // Text without characters that have no shape or change the direction of the name, and without spaces
  // that are not shown, like the server's.
  const visible = (name) =>
    name.replace(/[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, (c) =>
      c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : c === "\x7f" ? "\u2421" : "\ufffd")
      .replace(/^ | $|(?<= ) /g, "\u2423");

  // The bytes of the name that a link leads to, one character for each: in their order, not in that of
  // UTF-16.
  const bytes = (href) =>
    href.slice(2).replace(/\/$/, "").replace(/%(..)/g, (_, code) => String.fromCharCode("0x" + code));

  // A name in the natural order of the server: compared as text, numbers count.
  const natural = (name) =>
    name.replace(/[A-Z]/g, (c) => c.toLowerCase()).replace(/\d+/g, (digits) => {
      digits = digits.replace(/^0+/, "");
      return "0" + String.fromCharCode(digits.length) + digits;
    });

  const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  const shortSize = (len) => {
    if (len < 1024) return len + " B";
    let unit = -1, tenths;
    do {
      len /= 1024;
      tenths = Math.round(len * 10);
      unit += 1;
    } while (tenths >= 10235 && unit + 1 < units.length);
    return (tenths < 100 ? (tenths / 10).toFixed(1) : Math.round(tenths / 10)) + " " + units[unit];
  };
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

  const make = (name, properties, ...inner) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...inner);
    return element;
  };

  // The row of an entry: the server's, or the same made here.
  const rowOf = (entry) => {
    if (!entry.row) {
      const link = make("a", { href: entry.href }, make("bdi", {}, entry.name));
      if (entry.isFolder) link.append("/");
      const size = make("td", {});
      if (!entry.isFolder) {
        const title = grouped(entry.size) + (entry.size === 1 ? " byte" : " bytes");
        size.append(make("data", { value: entry.size, title }, shortSize(entry.size)));
      }
      const date = make("td", {});
      const { time } = entry;
      if (time) {
        const title = time.slice(0, 10) + " " + time.slice(11, 19) + " UTC";
        const clock = make("span", {}, time.slice(11, 16));
        date.append(make("time", { dateTime: time, title }, time.slice(0, 10) + " ", clock));
      }
      entry.row = make("tr", entry.isFolder ? { className: "d" } : {}, make("td", {}, link), size, date);
    }
    return entry.row;
  };

  const ofRow = (row) => {
    const [name, size, date] = row.cells;
    return {
      row,
      name: name.querySelector("bdi").textContent,
      href: name.querySelector("a").getAttribute("href"),
      isFolder: row.className === "d",
      size: Number(size.firstElementChild?.value ?? 0),
      time: date.firstElementChild?.dateTime ?? "",
    };
  };

  const ofObject = (object) => {
    const isFolder = object.type === "directory";
    const href = object.href ?? "./" + encodeURIComponent(object.name);
    return {
      name: visible(object.name),
      isFolder,
      href: isFolder ? href + "/" : href,
      size: object.size ?? 0,
      time: object.mtime ?? "",
    };
  };

  // All entries, each with its place in the order of names: those of the page, or if it has only
  // some of the folder's, those of the JSON.
  const load = () => {
    loading ??= (isWhole ? Promise.resolve() : fetch("?format=json").then((answer) => {
      if (!answer.ok) throw answer.status;
      return answer.json();
    })).then((objects) => {
      entries = objects
        ? objects.map(ofObject)
        : [...body.rows].filter((row) => row !== parent).map(ofRow);
      for (const entry of entries) {
        entry.bytes = bytes(entry.href);
        entry.key = natural(entry.bytes);
        entry.low = entry.name.toLowerCase();
      }
      const byName = (a, b) =>
        b.isFolder - a.isFolder ||
        (a.key < b.key ? -1 : a.key > b.key ? 1 : a.bytes < b.bytes ? -1 : a.bytes > b.bytes ? 1 : 0);
      [...entries].sort(byName).forEach((entry, place) => { entry.place = place; });
      cut?.remove();
      isWhole = true;
    });
    loading.catch(() => { loading = undefined; });
    return loading;
  };

  const sortBy = (sort, isDown) => {
    const sign = isDown ? -1 : 1;
    const compare = {
      name: (a, b) => sign * (a.place - b.place),
      size: (a, b) => sign * (a.size - b.size) || a.place - b.place,
      modified: (a, b) =>
        (a.time < b.time ? -sign : a.time > b.time ? sign : 0) || a.place - b.place,
    }[sort];
    entries.sort((a, b) => b.isFolder - a.isFolder || compare(a, b));
    for (const head of heads) {
      const link = head.firstElementChild;
      const key = new URL(link.href).searchParams.get("sort");
      const isKey = key === sort;
      if (isKey) head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      const next = isKey ? !isDown : usual[key];
      link.setAttribute("href", `?sort=${key}&order=${next ? "desc" : "asc"}`);
    }
  };

  const more = () => {
    body.append(...shown.slice(count, count + CHUNK).map(rowOf));
    count = Math.min(count + CHUNK, shown.length);
    // Watching anew reports whether the end is still near.
    ending.unobserve(footer);
    if (count < shown.length) ending.observe(footer);
  };
  const ending = new IntersectionObserver(([end]) => end.isIntersecting && more(),
    { rootMargin: "1500px" });

  const show = () => {
    const terms = filter.value.toLowerCase().split(" ").filter(Boolean);
    shown = terms.length
      ? entries.filter(({ low }) => terms.every((term) => low.includes(term)))
      : entries;
    body.replaceChildren(...(parent && !terms.length ? [parent] : []));
    count = 0;
    more();
    status.textContent = terms.length
      ? `${grouped(shown.length)} of ${grouped(entries.length)}` : "";
  };

  const remember = () => history.replaceState({ filter: filter.value }, "");

  const find = async () => {
    if (!loading && !filter.value) return;
    if (!isWhole) status.textContent = "Loading…";
    try {
      await load();
    } catch {
      status.textContent = "The list cannot be loaded.";
      return;
    }
    show();
  };

  const onSort = async (event) => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const { href } = event.currentTarget;
    const wanted = new URL(href).searchParams;
    try {
      await load();
    } catch {
      location.assign(href);
      return;
    }
    sortBy(wanted.get("sort"), wanted.get("order") === "desc");
    show();
    history.replaceState({ filter: filter.value }, "", href);
  };

  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const { key } = event;
    const at = document.activeElement;
    const row = at?.closest("tbody tr");
    let to;
    if (key === "/" && at !== filter) {
      to = filter;
      filter.select();
    } else if (key === "Escape" && at === filter) {
      filter.value = "";
      remember();
      find();
    } else if (key === "Enter" && at === filter && filter.value && entries) {
      remember();
      body.querySelector("a")?.click();
    } else if (key === "ArrowDown") {
      if (row) to = row.nextElementSibling;
      else if (at === filter || at === document.body) {
        to = [...body.rows].find((row) => row.getBoundingClientRect().top >= 0);
      } else return;
      to = to?.querySelector("a");
    } else if (key === "ArrowUp" && row) {
      to = row.previousElementSibling?.querySelector("a") ?? filter;
    } else return;
    event.preventDefault();
    to?.focus();
  };

  filter = make("input", { type: "search", placeholder: "Filter", autocomplete: "off" });
  filter.spellcheck = false;
  filter.setAttribute("aria-label", "Filter by name");
  filter.setAttribute("aria-keyshortcuts", "/");
  status = make("p", { id: "found" });
  status.setAttribute("role", "status");
  document.querySelector("#tools").prepend(make("div", { id: "find" }, filter, status));
  if (cut) cut.textContent = cut.textContent.replace("sort to", "sort or filter to");
  filter.addEventListener("input", find);
  filter.addEventListener("change", remember);
  for (const head of heads) head.firstElementChild.addEventListener("click", onSort);
  document.addEventListener("keydown", onKey);

  // An archive ignores the query, and a browser that goes back has the filter.
  filter.value = history.state?.filter ?? "";
  let sort = "name";
  let order = "ascending";
  for (const pair of location.search.slice(1).split("&")) {
    sort = /^sort=(name|size|modified)$/.exec(pair)?.[1] ?? sort;
    order = /^order=(asc|desc)$/.exec(pair)?.[1].concat("ending") ?? order;
  }
  const at = heads.findIndex((head) => head.hasAttribute("aria-sort"));
  if (Object.keys(usual)[at] !== sort || heads[at].getAttribute("aria-sort") !== order) {
    load().then(() => { sortBy(sort, order === "descending"); show(); }, () => {});
  } else find();
})();
