// Keyboard: the same keys everywhere on the page, except where one types.

import { byId } from "./dom.js";
import { MODES } from "./pointing.js";
import { stepCell } from "./puzzle.js";

const SCALE_ORDER = ["board", "row", "full"];

function isTyping(target) {
  return target instanceof HTMLElement && target.matches("input, textarea, select");
}

/** Key -> what it does, for keys without Shift. */
function actions(app) {
  const { view } = app;
  return {
    ArrowLeft: () => app.moveLayer(-1),
    ArrowRight: () => app.moveLayer(1),
    Home: () => app.setView({ layer: 0 }),
    End: () => app.setView({ layer: app.layers - 1 }),
    p: () => app.togglePlay(),
    d: () => app.setView({ digits: !view.digits }),
    f: () => app.setView({ factors: view.factors === "weights" ? "scores" : "weights" }),
    e: () => app.hasModes && app.setView({ edges: MODES[(MODES.indexOf(view.edges) + 1) % MODES.length] }),
    s: () => {
      const next = (SCALE_ORDER.indexOf(view.scale) + 1) % SCALE_ORDER.length;
      app.setView({ scale: SCALE_ORDER[next] });
    },
    Escape: () => app.closeInspector(),
    Backspace: () => {
      if (view.trail.length > 1) app.follow(view.trailModel, view.trail.slice(0, -1));
      else app.closeInspector();
    },
    "?": () => byId("help").showModal(),
  };
}

export function bindKeys(app) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || !app.run) return;
    if (isTyping(event.target)) return;
    if (event.shiftKey && event.key.startsWith("Arrow")) {
      app.setView({ cell: stepCell(app.session.layout, app.view.cell, event.key) });
    } else if (event.key === " " && !(event.target instanceof HTMLButtonElement)) {
      app.togglePlay();
    } else {
      const action = actions(app)[event.key];
      if (!action) return;
      action();
    }
    event.preventDefault();
  });
}
