// Behaviour of the console's pages: pause, filter, keys, state of the feed, copy buttons, local times.
// Without it the pages show the state at their load, and all forms work.
(() => {
  'use strict';

  const LABELS = { connecting: 'connecting', live: 'live', paused: 'paused', lost: 'reconnecting…' };
  const SEQUENCE_MS = 1500;
  const COPIED_MS = 2000;

  let isPaused = false;
  let isConnected = false;
  let isBehind = false;
  const openDetails = new Set();
  const scrollPositions = new Map();
  const requestedQuestions = new Set();

  const byId = (id) => document.getElementById(id);
  const all = (selector, root = document) => {
    const below = Array.from(root.querySelectorAll(selector));
    return root !== document && root.matches(selector) ? [root, ...below] : below;
  };

  // --- updates ---------------------------------------------------------------------------------

  function showFeedState() {
    const label = byId('feed-state');
    if (!label) return;
    const state = isPaused ? 'paused' : isConnected ? 'live' : 'lost';
    label.dataset.state = state;
    label.textContent = LABELS[state];
  }

  // Text that is being selected stays: it may be about to be copied.
  function hasSelection(element) {
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && selection.anchorNode && element.contains(selection.anchorNode));
  }

  // Streams that are open: that of the page, and of htmx's attempts after it was refused.
  const feeds = new Set();

  // Event stream of the page, for htmx. It is closed while the page is hidden, because a node has places for few.
  class PageFeed {
    constructor(url) {
      this.url = url;
      this.listeners = [];
      this.source = null;
      this.hasEnded = false;
      this.onopen = null;
      this.onerror = null;
      this.follow = this.follow.bind(this);
      document.addEventListener('visibilitychange', this.follow);
      this.follow();
    }

    get readyState() {
      if (this.hasEnded) return EventSource.CLOSED;
      return this.source ? this.source.readyState : EventSource.CONNECTING;
    }

    follow() {
      if (this.hasEnded) return;
      if (document.hidden) {
        if (this.source) this.source.close();
        this.source = null;
        isConnected = false;
        showFeedState();
      } else if (!this.source) {
        this.open();
      }
    }

    open() {
      const source = new EventSource(this.url);
      this.source = source;
      for (const [type, listener] of this.listeners) source.addEventListener(type, listener);
      source.onopen = (event) => { if (this.onopen) this.onopen(event); };
      source.onerror = (event) => {
        // One that was refused isn't opened again: htmx makes another.
        if (source.readyState === EventSource.CLOSED) this.close();
        if (this.onerror) this.onerror(event);
      };
    }

    addEventListener(type, listener) {
      this.listeners.push([type, listener]);
      if (this.source) this.source.addEventListener(type, listener);
    }

    removeEventListener(type, listener) {
      this.listeners = this.listeners.filter(([otherType, other]) => otherType !== type || other !== listener);
      if (this.source) this.source.removeEventListener(type, listener);
    }

    close() {
      this.hasEnded = true;
      feeds.delete(this);
      document.removeEventListener('visibilitychange', this.follow);
      if (this.source) this.source.close();
      this.source = null;
    }
  }

  function refresh() {
    isBehind = false;
    for (const element of all('[data-live]')) htmx.trigger(element, 'sse:change');
  }

  function setPaused(paused) {
    isPaused = paused;
    const button = byId('pause');
    button.setAttribute('aria-pressed', String(paused));
    button.textContent = paused ? 'Resume' : 'Pause';
    showFeedState();
    if (!paused) refresh();
  }

  function onBeforeRequest(event) {
    const element = event.detail.elt;
    if (!element.matches('[data-live]')) return;
    if (isPaused || document.hidden || hasSelection(element)) {
      isBehind = true;
      event.preventDefault();
    }
  }

  function onBeforeSwap(event) {
    const { xhr, target } = event.detail;
    // The session has ended, and the request was led to the page that asks for a credential.
    if (xhr.responseURL && new URL(xhr.responseURL).pathname === '/login') {
      event.detail.shouldSwap = false;
      location.assign('/login');
      return;
    }
    for (const box of all('.scroll[id]', target)) scrollPositions.set(box.id, [box.scrollLeft, box.scrollTop]);
  }

  function onResponseError(event) {
    if (event.detail.xhr.status === 401) location.assign('/login');
  }

  // Restores in new content what the reader has done to the old one.
  function onNewContent(root) {
    for (const details of all('details[id]', root)) {
      if (openDetails.has(details.id)) details.open = true;
    }
    for (const box of all('.scroll[id]', root)) {
      const position = scrollPositions.get(box.id);
      if (position) [box.scrollLeft, box.scrollTop] = position;
    }
    showTimes(root);
    showAges();
    announceCounts();
  }

  // --- times -----------------------------------------------------------------------------------

  function showTimes(root) {
    const today = new Date().toDateString();
    for (const element of all('time[data-ms]', root)) {
      const date = new Date(Number(element.dataset.ms));
      const time = date.toLocaleTimeString([], { hour12: false });
      element.dateTime = date.toISOString();
      element.title = date.toLocaleString();
      element.textContent = date.toDateString() === today ? time : `${date.toLocaleDateString()} ${time}`;
    }
  }

  function longTime(seconds) {
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }

  function showAges() {
    for (const element of all('[data-since]')) {
      const passed = Math.max(0, Date.now() - Number(element.dataset.since));
      element.textContent = longTime(Math.floor(passed / 1000));
    }
  }

  // --- counts and questions --------------------------------------------------------------------

  let announced = null;

  // Only what asks for somebody is announced, and only if it changes.
  function announceCounts() {
    const list = byId('counts-list');
    if (!list) return;
    const { questions, away } = list.dataset;
    const text = `${questions} questions wait, ${away} upstreams are away`;
    if (announced !== null && announced !== text) byId('announcement').textContent = text;
    announced = text;
  }

  function markAsGone(card) {
    card.dataset.gone = 'true';
    for (const control of all('button, input, textarea, select', card)) control.disabled = true;
    const note = document.createElement('p');
    note.className = 'hint';
    note.textContent = 'It has been answered, or its call has ended.';
    card.append(note);
  }

  // Adds forms of new questions below the others, and marks those that have gone: no input is lost.
  function updateQuestionForms() {
    const list = byId('questions-list');
    if (!list || !byId('question-forms')) return;
    const listed = new Set(all('[data-question]', list).map((item) => item.dataset.question));
    const cards = all('[data-question-card]');
    const shown = new Set(cards.map((card) => card.dataset.questionCard));
    for (const card of cards) {
      if (!listed.has(card.dataset.questionCard) && !card.dataset.gone) markAsGone(card);
    }
    for (const id of listed) {
      if (shown.has(id) || requestedQuestions.has(id)) continue;
      requestedQuestions.add(id);
      htmx.ajax('GET', `/part/question?id=${encodeURIComponent(id)}`, { target: '#question-forms', swap: 'beforeend' });
    }
  }

  // --- keys ------------------------------------------------------------------------------------

  let sequenceEnds = 0;

  function onKey(event) {
    const isTyping = event.target.closest('input, textarea, select, [contenteditable]');
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    const isSequence = Date.now() < sequenceEnds;
    sequenceEnds = 0;
    if (isSequence) {
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    const actions = {
      g: () => { sequenceEnds = Date.now() + SEQUENCE_MS; },
      p: () => { if (byId('pause')) setPaused(!isPaused); },
      '?': () => { if (byId('help')) byId('help').showModal(); },
      '/': () => { const field = document.querySelector('[data-search]'); if (field) field.focus(); },
    };
    const action = Object.hasOwn(actions, event.key) ? actions[event.key] : null;
    if (action) {
      event.preventDefault();
      action();
    }
  }

  // --- buttons ---------------------------------------------------------------------------------

  async function copy(button) {
    const source = byId(button.dataset.copy);
    const selection = document.getSelection();
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      // Without a secure connection there is no clipboard: the text is selected, for the reader to copy.
      selection.selectAllChildren(source);
      button.textContent = 'Selected: press Ctrl+C';
      return;
    }
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, COPIED_MS);
  }

  function onClick(event) {
    const button = event.target.closest('button');
    if (!button) return;
    if (button.id === 'pause') setPaused(!isPaused);
    if (button.id === 'help-open') byId('help').showModal();
    if (button.dataset.copy) copy(button);
  }

  function onChange(event) {
    if (event.target.matches('[data-submit]')) event.target.form.requestSubmit();
  }

  // The address holds the filter, so that a reload keeps it.
  function onInput(event) {
    if (event.target.id !== 'filter') return;
    const filter = event.target.value;
    history.replaceState(null, '', filter ? `/?filter=${encodeURIComponent(filter)}` : '/');
  }

  function onToggle(event) {
    if (!event.target.matches('details[id]')) return;
    if (event.target.open) openDetails.add(event.target.id);
    else openDetails.delete(event.target.id);
  }

  function start() {
    const body = document.body;
    body.addEventListener('htmx:beforeRequest', onBeforeRequest);
    body.addEventListener('htmx:beforeSwap', onBeforeSwap);
    body.addEventListener('htmx:responseError', onResponseError);
    body.addEventListener('htmx:afterSettle', (event) => {
      if (event.detail.target && event.detail.target.id === 'questions-list') updateQuestionForms();
    });
    body.addEventListener('htmx:sseOpen', () => {
      // Changes during an interruption were missed.
      const wasConnected = isConnected;
      isConnected = true;
      showFeedState();
      if (!wasConnected) refresh();
    });
    body.addEventListener('htmx:sseError', (event) => {
      isConnected = false;
      showFeedState();
      // The stream was refused: another request finds out whether the session has ended.
      if (event.detail.source.readyState === EventSource.CLOSED) htmx.trigger(byId('counts'), 'sse:change');
    });
    document.addEventListener('visibilitychange', () => { if (!document.hidden && isBehind && !isPaused) refresh(); });
    document.addEventListener('selectionchange', () => {
      if (isBehind && !isPaused && document.getSelection().isCollapsed) refresh();
    });
    document.addEventListener('keydown', onKey);
    // The stream ends with the session: it is closed first, so that its end isn't a failure.
    document.addEventListener('submit', (event) => { if (event.target.getAttribute('action') === '/logout') for (const feed of [...feeds]) feed.close(); });
    document.addEventListener('click', onClick);
    document.addEventListener('change', onChange);
    document.addEventListener('input', onInput);
    document.addEventListener('toggle', onToggle, true);
    htmx.onLoad(onNewContent);
    onNewContent(document);
    setInterval(showAges, 1000);
  }

  // Before htmx opens the stream of the page, which it does when the page is ready.
  htmx.createEventSource = (url) => {
    const feed = new PageFeed(url);
    feeds.add(feed);
    return feed;
  };
  start();
})();
