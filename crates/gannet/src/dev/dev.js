// The part of `gannet dev` in a page: hears about changes, and shows what is wrong.
(() => {
  'use strict';
  const own = document.currentScript;
  let at = new URL(own.src).searchParams.get('at');
  own.remove();
  const first = at;
  // The page around a frame hears for it: each stream takes one of a host's few connections.
  try {
    if (parent !== window && parent.location.origin === location.origin) return;
  } catch {
    // The page around it is of another site.
  }
  let source = null;
  let overlay = null;

  const connect = () => {
    if (source || document.hidden) return;
    source = new EventSource('/.gannet/events?at=' + encodeURIComponent(at));
    source.onmessage = (event) => hear(JSON.parse(event.data));
    // Not by itself: that would say again what the page knew at first.
    source.onerror = () => {
      disconnect();
      setTimeout(connect, 500);
    };
  };

  // A browser has few connections for a host: hidden windows leave them to others.
  const disconnect = () => {
    if (source) source.close();
    source = null;
  };

  const hear = (news) => {
    at = news.at;
    if (news.change === 'page' || (news.change === 'styles' && !loadStyles())) {
      if (reload()) return;
      news.problems.push({
        title: 'This page is not what is served now',
        text: 'The page is unchanged after a reload: a service worker of the site answers from its cache.',
      });
    }
    show(news.problems);
  };

  // Loads the page again, unless that gave this very page before: it would go on for ever.
  const reload = () => {
    try {
      if (sessionStorage.getItem('gannet-dev') === first) return false;
      sessionStorage.setItem('gannet-dev', first);
    } catch {
      // No storage, no service worker.
    }
    disconnect();
    location.reload();
    return true;
  };

  // A document and those of its frames, but for other sites'.
  const documents = (of) => {
    try {
      return [of.document, ...Array.from(of, documents)];
    } catch {
      return [];
    }
  };

  // Loads the style sheets again, each of which stays until the new one is there.
  const loadStyles = () => {
    const find = (it) => [...it.querySelectorAll('link[rel~="stylesheet" i][href]')];
    const links = documents(window).flat(Infinity).flatMap(find);
    const ours = links.filter((it) => new URL(it.href).origin === location.origin);
    for (const before of ours) {
      const after = before.cloneNode();
      const url = new URL(before.href);
      url.searchParams.set('gannet', at);
      after.removeAttribute('integrity');
      after.href = url.href;
      const replace = () => before.remove();
      after.addEventListener('load', replace);
      after.addEventListener('error', replace);
      before.after(after);
    }
    return ours.length > 0;
  };

  const STYLE = `
    :host { all: initial; position: fixed; inset: 0; z-index: 2147483647; overflow: auto;
      background: rgb(0 0 0 / 60%); }
    main { box-sizing: border-box; width: calc(100% - 2rem); max-width: 64rem; margin: 4vh auto; padding: 1.25rem 1.5rem;
      background: #1b1b1f; color: #e8e8ea; border-top: 4px solid #e5484d; border-radius: 6px;
      font: 15px/1.5 system-ui, sans-serif; }
    header { display: flex; justify-content: space-between; align-items: baseline; gap: 1rem; }
    h1 { margin: 0; font-size: 1rem; font-weight: 600; color: #b4b4bb; }
    h2 { margin: 1rem 0 .5rem; font-size: 1.1rem; color: #ff8a8e; }
    pre { margin: 0; padding: .75rem 1rem; overflow: auto; max-height: 60vh; white-space: pre-wrap;
      overflow-wrap: anywhere; background: #0e0e10; border-radius: 4px;
      font: 13px/1.5 ui-monospace, monospace; }
    p { margin: 1rem 0 0; color: #b4b4bb; }
    button { font: inherit; color: inherit; background: none; border: 1px solid #6b6b74;
      border-radius: 4px; padding: .1rem .6rem; cursor: pointer; }
  `;

  const element = (name, text, ...children) => {
    const made = document.createElement(name);
    made.textContent = text;
    made.append(...children);
    return made;
  };

  const hide = () => {
    if (overlay) overlay.remove();
    overlay = null;
  };

  const show = (problems) => {
    hide();
    if (problems.length === 0) return;
    overlay = document.createElement('gannet-overlay');
    // Neither the page's styles nor its policy reach in here.
    const root = overlay.attachShadow({ mode: 'open' });
    const style = new CSSStyleSheet();
    style.replaceSync(STYLE);
    root.adoptedStyleSheets = [style];
    const close = element('button', 'Close');
    close.addEventListener('click', hide);
    const main = element('main', '', element('header', '', element('h1', 'gannet dev'), close));
    main.setAttribute('role', 'alertdialog');
    main.setAttribute('aria-label', 'gannet dev');
    for (const problem of problems) {
      main.append(element('h2', problem.title), element('pre', problem.text));
    }
    main.append(element('p', 'This goes away when it is fixed. Escape closes it until the next change.'));
    root.append(main);
    document.documentElement.append(overlay);
  };

  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
  });
  document.addEventListener('visibilitychange', () => (document.hidden ? disconnect() : connect()));
  addEventListener('pagehide', disconnect);
  addEventListener('pageshow', connect);
  connect();
})();
