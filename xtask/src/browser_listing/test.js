const tell = (what) => fetch("/told-" + encodeURIComponent(what));
const check = (is, what) => { if (!is) throw new Error(what); };
const soon = () => new Promise((done) => setTimeout(done, 20));
const until = async (is, what) => {
  for (let tries = 0; !is(); tries += 1) {
    check(tries < 1500, what);
    await soon();
  }
};
const show = async (path, features) => {
  const page = open(path, "_blank", features);
  await until(() => page.location.pathname + page.location.search === path &&
    page.document.readyState === "complete", "no page at " + path);
  check(page.document.querySelector("input"), "the script does not run in " + path);
  page.violations = [];
  page.document.addEventListener("securitypolicyviolation",
    (event) => page.violations.push(event.blockedURI));
  return page;
};
// Rows as text. Links may escape more than they must, and end tags may be left out.
const rows = (of) => [...of.querySelectorAll("tbody tr:not(.u)")].map((row) =>
  row.outerHTML.replaceAll("\n", "").replaceAll("&amp;", "&").replace(/%([2-7][0-9A-F])/g,
    (_, code) => String.fromCharCode(parseInt(code, 16))));
const served = async (path) =>
  rows(new DOMParser().parseFromString(await (await fetch(path)).text(), "text/html"));
const same = (made, expected, what) => {
  const at = made.findIndex((row, place) => row !== expected[place]);
  check(at < 0, `${what}: row ${at} is ${made[at]}, not ${expected[at]}`);
};
const head = (page, name) => page.document.querySelector(`th a[href*="sort=${name}"]`);
const press = (page, key) => page.document.activeElement.dispatchEvent(
  new page.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const type = (page, text) => {
  const input = page.document.querySelector("input");
  input.value = text;
  input.dispatchEvent(new page.Event("input"));
};

// The six orders: by a click, without a reload, at the address of the same order.
const orders = async (page, isTold) => {
  for (const name of ["size", "modified", "name"]) for (const again of [0, 1]) {
    page.mark = name + again;
    const { href } = head(page, name);
    const start = performance.now();
    head(page, name).click();
    await until(() => page.location.href === href, "the address of " + href);
    page.document.body.getBoundingClientRect();
    const took = Math.round(performance.now() - start);
    check(page.mark === name + again, "it was loaded again");
    const down = href.endsWith("desc") ? "descending" : "ascending";
    const sorted = page.document.querySelectorAll("th[aria-sort]");
    check(sorted.length === 1 && sorted[0] === head(page, name).parentNode &&
      sorted[0].getAttribute("aria-sort") === down, "aria-sort of " + href);
    const made = rows(page.document);
    check(made.length >= 16, made.length + " rows");
    same(made, await served(href), href);
    const order = href.slice(href.indexOf("=") + 1).replace("&order=", "-");
    if (isTold) await tell(`sorted-${order}-${took}ms`);
  }
};

const few = async () => {
  const page = await show("/few/");
  const all = rows(page.document).length;
  press(page, "/");
  const input = page.document.querySelector("input");
  check(page.document.activeElement === input, "the filter has no focus");
  type(page, "GZ app");
  await until(() => rows(page.document).length === 3, "rows of a filter");
  check(page.document.querySelector("#found").textContent === "3 of " + all, "the number found");
  press(page, "ArrowDown");
  check(page.document.activeElement.textContent === "app-1.2.9.tar.gz", "the first link");
  press(page, "ArrowDown");
  check(page.document.activeElement.textContent.endsWith("10.tar.gz"), "the second link");
  press(page, "ArrowUp");
  press(page, "ArrowUp");
  check(page.document.activeElement === input, "back to the filter");
  press(page, "Escape");
  await until(() => rows(page.document).length === all, "all rows");
  await orders(page);
  type(page, "no such");
  await until(() => rows(page.document).length === 0, "rows of a filter that nothing has");
  type(page, "a-page");
  await until(() => rows(page.document).length === 1, "the row of a page");
  press(page, "Enter");
  await until(() => page.location.pathname === "/few/a-page.html", "Enter opens");
  const sorted = await show("/few/?sort=size&order=desc");
  same(rows(sorted.document), await served("/few/?sort=size&order=desc"), "a page as sorted");
  const odd = "/few/?sort=modified&sort=constructor&order=desc&order=up";
  same(rows((await show(odd)).document), await served(odd), "a page with odd parameters");
  check(!page.violations?.length && !sorted.violations.length, "violations of the policy");
};

const many = async () => {
  const page = await show("/many/");
  const note = page.document.querySelector("#cut");
  check(note?.textContent.endsWith("; sort or filter to see others."), "no note of what is left out");
  const first = performance.now();
  type(page, "name-54321");
  await until(() => rows(page.document).length === 1, "the row of a filter");
  await tell(`filtered-${Math.round(performance.now() - first)}ms`);
  type(page, "");
  await orders(page, true);
  check(!page.violations.length, "violations of the policy");
};

// More entries than can be listed, on the screen of a phone: the note has a line of its own, and stays.
const phone = async () => {
  const page = await show("/more/", "popup,width=390,height=844");
  const { document: { body, documentElement: root }, innerWidth: width } = page;
  check(width < 500, "a screen of " + width);
  const at = (name) => page.document.querySelector(name).getBoundingClientRect();
  const lines = ["#find", "#cut", "#rest", "table"].map(at);
  check(lines.every((line, place) => !place || lines[place - 1].bottom <= line.top), "a note in the way");
  check(at("#rest").left >= 0 && at("#rest").right <= width && root.scrollWidth <= width, "too wide");
  type(page, "name-9999");
  await until(() => !page.document.querySelector("#cut"), "what a filter shows");
  check(body.innerText.includes("more entries than can be listed"), "no note of what is in no listing");
  check(!page.violations.length, "violations of the policy");
};

few().then(() => tell("few")).then(many).then(() => tell("many")).then(phone).then(() => tell("phone"))
  .catch((error) => tell("failed: " + error));
