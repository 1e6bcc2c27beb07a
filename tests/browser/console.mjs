// Uses the console's pages in Chromium, as people do: `console.mjs CHROMIUM FOLDER`. Standard input has a JSON object a line,
// `{"step", "as", …}`: a step of the table `steps` for the person `as`, who has a browser context of their own. For each it prints
// `{"done": …}` or `{"broken": …}`. A step is also broken if, since the step before, a page logged an error (such as a violation of the
// content security policy), threw one, or sent a request to another origin. The folder is for temporary files. Screenshots are
// written to the folder in CALLBOARD_SCREENSHOTS, if it is set. CALLBOARD_PEERS names the folder of the packages.

import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.CALLBOARD_PEERS}/node/`);
const { chromium } = require("playwright-core");
const { source: AXE } = require("axe-core");

const [, , CHROMIUM, FOLDER] = process.argv;
const { CALLBOARD_SCREENSHOTS: SCREENSHOTS } = process.env;
// Bound of each wait. Shorter than the wait of the test for a step.
const WAIT_MS = 40_000;
const HEIGHT = 800;
const WIDTHS = [1280, 400];
const COLOR_SCHEMES = ["light", "dark"];
// Elements that Tab passes at most before the one that is looked for.
const TABS_MAX = 100;

// What htmx logs of a request that a navigation ends.
const LOGGED_BY_NAVIGATION = /^htmx:(sendAbort|afterRequest)/;

const FEED_LIVE = '#feed-state[data-state="live"]';
const CREDENTIAL = 'input[name="credential"]';
const marked = (name) => `[data-testid="${name}"]`;
const form = (action) => `form[action="/do/${action}"]`;

/** A person at the console. */
class Person {
  problems = [];
  // Whether the node is away, or nobody has signed in since: requests of the page fail, which is logged.
  isAway = false;

  static async enter(browser, origin) {
    const person = new Person();
    const options = { baseURL: origin, reducedMotion: "reduce", serviceWorkers: "block" };
    person.context = await browser.newContext(options);
    person.context.setDefaultTimeout(WAIT_MS);
    person.context.on("request", (request) => person.sees(request, origin));
    person.context.on("weberror", (error) => person.problems.push(`thrown: ${error.error().stack}`));
    person.context.on("console", (message) => person.logs(message));
    person.page = await person.context.newPage();
    return person;
  }

  sees(request, origin) {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.origin !== origin) this.problems.push(`request to ${url.origin}`);
  }

  logs(message) {
    const text = message.text();
    const isExpected = LOGGED_BY_NAVIGATION.test(text) || (this.isAway && !text.includes("Content Security Policy"));
    if (message.type() === "error" && !isExpected) this.problems.push(`logged: ${text} (${message.location().url})`);
  }

  /** Opens a page, and waits until its scripts have run. */
  async open(path) {
    const response = await this.page.goto(path, { waitUntil: "load" });
    if (!response.ok()) throw new Error(`${path} is answered ${response.status()}`);
  }

  async text() {
    return this.page.locator("main").innerText();
  }

  /** Moves the focus by Tab to an element. */
  async tabTo(selector) {
    const wanted = this.page.locator(selector).first();
    await wanted.waitFor();
    const isFocused = () => wanted.evaluate((element) => element === document.activeElement);
    for (let tabs = 0; tabs < TABS_MAX; tabs++) {
      if (await isFocused()) return;
      await this.page.keyboard.press("Tab");
    }
    throw new Error(`${selector} isn't reached by Tab`);
  }

  /** Waits until a function holds in the page. */
  async until(what, holds, argument) {
    await this.page.waitForFunction(holds, argument).catch((error) => {
      throw new Error(`not within ${WAIT_MS} ms: ${what}: ${error.message}`);
    });
  }

  /** What axe-core finds on the page, at each width and in each color scheme, and whether it is wider than the window. */
  async faults(name) {
    const found = [];
    await this.page.evaluate(AXE);
    for (const colorScheme of COLOR_SCHEMES) {
      await this.page.emulateMedia({ colorScheme });
      for (const width of WIDTHS) {
        await this.page.setViewportSize({ width, height: HEIGHT });
        const at = `${name}-${colorScheme}-${width}`;
        const { violations } = await this.page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
        for (const { id, help, nodes } of violations) found.push(`${at}: ${id} (${help}): ${nodes.map(({ html }) => html).join(" ")}`);
        const wide = await this.page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        if (wide > 0) found.push(`${at}: ${wide} px wider than the window`);
        if (SCREENSHOTS) await this.page.screenshot({ path: join(SCREENSHOTS, `${at}.png`), fullPage: true });
      }
    }
    await this.page.emulateMedia({ colorScheme: null });
    await this.page.setViewportSize({ width: WIDTHS[0], height: HEIGHT });
    return found;
  }

  /** Loads the page again until a function holds. */
  async reloadUntil(what, holds) {
    const ends = Date.now() + WAIT_MS;
    while (!(await holds())) {
      if (Date.now() > ends) throw new Error(`not within ${WAIT_MS} ms: ${what}`);
      await this.page.reload();
    }
  }

  /** The latest call of a tool in the feed. */
  call(agent, tool) {
    return this.page.locator(marked("call")).filter({ hasText: agent }).filter({ hasText: tool }).first();
  }
}

const steps = {
  /** Signs in with the keyboard alone. */
  async sign_in(person, { key }) {
    const { page } = person;
    await person.open("/login");
    await person.tabTo(CREDENTIAL);
    await page.keyboard.type(key);
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => url.pathname !== "/login");
    return person.text();
  },

  /** Opens a page; its text. */
  async open(person, { path }) {
    await person.open(path);
    return person.text();
  },

  /** Checks a page, which is opened if it has a path. */
  async look(person, { name, path }) {
    if (path) await person.open(path);
    const faults = await person.faults(name);
    if (faults.length) throw new Error(faults.join("\n"));
  },

  /** Opens a page, and waits until its feed is connected. The page must stay: what appears later comes by the feed. */
  async watch(person, { path = "/" }) {
    await person.open(path);
    await person.until("a connected feed", (live) => document.querySelector(live), FEED_LIVE);
    await person.page.evaluate(() => (window.hasStayed = true));
  },

  /** Waits for a call in the feed. */
  async call_appears(person, { agent, tool }) {
    await person.call(agent, tool).waitFor();
    if (!(await person.page.evaluate(() => window.hasStayed))) throw new Error("the page was loaded anew");
  },

  /** Opens the timeline of a call in the feed. */
  async open_timeline(person, { agent, tool }) {
    await person.call(agent, tool).click();
    await person.page.waitForURL(/\/calls\//);
    await person.page.locator(marked("timeline")).waitFor();
  },

  /** The text of a timeline whose call has ended, with what it shows on demand. */
  async read_timeline(person) {
    const { page } = person;
    await page.locator(`${marked("timeline")}:not([data-live])`).waitFor();
    for (const summary of await page.locator("main details summary").all()) await summary.click();
    return person.text();
  },

  /** Begins to answer a question, with the keyboard alone. */
  async begin_answer(person, { message, project }) {
    const { page } = person;
    await person.open("/questions");
    const question = page.locator(form("answer")).filter({ has: page.locator('[name="v.project"]') });
    await question.first().waitFor();
    await page.getByText(message).first().waitFor();
    await person.tabTo(`${form("answer")} [name="v.project"]`);
    await page.keyboard.type(project);
    await page.evaluate(() => document.addEventListener("htmx:afterSettle", () => (window.isRefreshed = true)));
  },

  /** Once the page has been refreshed: the focus and the text are where they were; sends the answer. */
  async end_answer(person, { project }) {
    const { page } = person;
    await person.until("a refreshed page", () => window.isRefreshed);
    const field = `${form("answer")} [name="v.project"]`;
    const focused = await page.evaluate(() => [document.activeElement.name, document.activeElement.value]);
    if (focused.join() !== `v.project,${project}`) throw new Error(`the focus is at ${focused}`);
    await person.tabTo(`${form("answer")} [name="v.is_urgent"]`);
    await page.keyboard.press("Space");
    await person.tabTo(`${form("answer")} [name="action"][value="accept"]`);
    await page.keyboard.press("Enter");
    await page.locator(field).waitFor({ state: "detached" });
    await person.open("/questions");
    if (await page.locator(field).count()) throw new Error("the answered question is still there");
  },

  /** Runs a tool in the playground; the text of its result. */
  async play(person, { agent, tool, text }) {
    const { page } = person;
    await person.open(`/play?agent=${agent}&tool=${tool}`);
    const run = page.locator(form("play"));
    await run.locator('[name="v.text"]').fill(text);
    await run.locator(marked("play-submit")).click();
    const result = page.locator(marked("play-run"));
    await result.filter({ hasText: `echo: ${text}` }).waitFor();
    return result.innerText();
  },

  /** Approves a changed tool; what the page showed of it. */
  async approve_tool(person, { tool }) {
    const { page } = person;
    await person.open("/tools");
    const approval = page.locator(form("tool")).filter({ has: page.locator(`input[name="tool"][value="${tool}"]`) });
    await approval.first().waitFor();
    const shown = await person.text();
    await approval.locator(marked("approve-tool")).click();
    await approval.waitFor({ state: "detached" });
    return shown;
  },

  /** Cancels a task that is in the list. */
  async cancel_task(person, { id }) {
    const { page } = person;
    await person.open("/tasks");
    await page.locator(marked("task-link")).filter({ hasText: id }).click();
    await page.waitForURL(/\/tasks\//);
    await page.locator(marked("cancel-task")).click();
    await page.waitForLoadState("load");
    await person.reloadUntil("the end of the task", async () => !(await page.locator(form("task")).count()));
    return person.text();
  },

  /** Goes through the keys of the page. */
  async keyboard(person) {
    const { page } = person;
    const { keyboard } = page;
    await person.open("/");
    await keyboard.press("Tab");
    const first = await page.evaluate(() => document.activeElement.getAttribute("href"));
    if (!first?.startsWith("#")) throw new Error("the first element isn't a link past the navigation");
    await keyboard.press("Enter");
    await keyboard.press("/");
    await person.until("the filter's focus", () => document.activeElement.name === "filter");
    await keyboard.press("Tab");
    for (const isPaused of [true, false]) {
      await keyboard.press("p");
      await page.locator(`#pause[aria-pressed="${isPaused}"]`).waitFor();
    }
    await keyboard.press("?");
    await page.locator("dialog[open]").waitFor();
    await keyboard.press("Escape");
    await page.locator("dialog[open]").waitFor({ state: "detached" });
    for (const [key, path] of [["q", "/questions"], ["a", "/"]]) {
      await keyboard.press("g");
      await keyboard.press(key);
      await page.waitForURL((url) => url.pathname === path);
    }
  },

  /** Number of elements that change something on a page, beside the one that signs out. */
  async buttons(person, { path }) {
    await person.open(path);
    return person.page.locator('form[method="post"] :is(button, input[type="submit"])').and(
      person.page.locator(':not(form[action="/logout"] *)')).count();
  },

  /** Status of a form that is posted without the page. */
  async post(person, { path, form }) {
    const response = await person.context.request.post(path, { form, maxRedirects: 0 });
    return response.status();
  },

  /** Waits until the page shows that the node is away. */
  async node_leaves(person) {
    await person.until("a page without its feed", (live) => !document.querySelector(live), FEED_LIVE);
  },

  /** Begins to tolerate failed requests: the node is about to end. */
  async expect_away(person) {
    person.isAway = true;
  },

  /** Waits until the page has its feed again, or asks for the key, for sessions end with the node. */
  async recover(person, { key, path }) {
    const { page } = person;
    await page.locator(`${FEED_LIVE}, ${CREDENTIAL}`).waitFor();
    if (await page.locator(CREDENTIAL).count()) await steps.sign_in(person, { key });
    await steps.watch(person, { path });
    person.isAway = false;
  },

  /** Signs out; the next page is the one to sign in. */
  async sign_out(person) {
    const { page } = person;
    await page.locator('form[action="/logout"] button').first().click();
    await page.locator(CREDENTIAL).waitFor();
  },
};

// What the browser writes is where the test removes it.
Object.assign(process.env, { HOME: FOLDER, TMPDIR: FOLDER });
const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: ["--no-sandbox", "--disable-background-networking"],
});
const people = new Map();

async function take({ step, as, origin, ...rest }) {
  if (step === "end") return browser.close();
  if (!people.has(as)) people.set(as, await Person.enter(browser, origin));
  const person = people.get(as);
  const problems = () => person.problems.splice(0).join("\n");
  const done = await steps[step](person, rest).catch((why) => {
    throw new Error(`at ${person.page.url()}: ${why.message}\n${problems()}`);
  });
  if (person.problems.length) throw new Error(problems());
  return done ?? null;
}

for await (const line of createInterface({ input: process.stdin })) {
  const wanted = JSON.parse(line);
  const reply = await take(wanted).then(
    (done) => ({ done }),
    (why) => ({ broken: `${wanted.step}: ${why?.stack ?? why}` }),
  );
  console.log(JSON.stringify(reply));
}
await browser.close();
