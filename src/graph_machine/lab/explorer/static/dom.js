// Small helpers for elements.

/** An element with attributes (`on...` are listeners) and children. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set text only where it changed, so that nothing is laid out in vain. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setLabel(element, text) {
  if (element.getAttribute("aria-label") !== text) element.setAttribute("aria-label", text);
}

export const byId = (id) => document.getElementById(id);

/** One tooltip for all boards: it floats, so that nothing moves. */
export class Tooltip {
  constructor() {
    this.element = make("div", { class: "tooltip", role: "presentation", hidden: true });
    document.body.append(this.element);
  }

  show(event, text) {
    setText(this.element, text);
    this.element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const x = Math.min(event.clientX + 14, window.innerWidth - width - 8);
    const below = event.clientY + 18;
    const y = below + height > window.innerHeight ? event.clientY - height - 10 : below;
    this.element.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
  }

  hide() {
    this.element.hidden = true;
  }
}
