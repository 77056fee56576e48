// Canvases: their size on screen, and colour maps, made in OKLCH so that equal steps of a value look
// equal, for both themes.

/** Set a canvas to its size on screen and return a context in CSS pixels. */
export function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  return { context, width: w, height: h, ratio };
}

const STEPS = 256;

// Lightness falls (light theme) or rises (dark theme) evenly; hue turns for more distinct levels.
const STOPS = {
  light: [
    [0.985, 0.006, 95],
    [0.86, 0.07, 185],
    [0.66, 0.115, 225],
    [0.45, 0.14, 262],
    [0.24, 0.09, 282],
  ],
  dark: [
    [0.225, 0.012, 265],
    [0.38, 0.11, 285],
    [0.55, 0.135, 250],
    [0.75, 0.12, 190],
    [0.96, 0.1, 105],
  ],
};

function toSrgb(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((x) => {
    const clipped = Math.min(1, Math.max(0, x));
    const curved = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
    return Math.round(255 * curved);
  });
}

function makeMap(stops) {
  const colours = [];
  for (let i = 0; i < STEPS; i++) {
    const place = (i / (STEPS - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    const part = place - low;
    const mixed = stops[low].map((x, j) => x + part * (stops[low + 1][j] - x));
    colours.push(`rgb(${toSrgb(...mixed).join(",")})`);
  }
  return colours;
}

const MAPS = { light: makeMap(STOPS.light), dark: makeMap(STOPS.dark) };
const scheme = window.matchMedia("(prefers-color-scheme: dark)");

/** Calls back when the system changes between light and dark. */
export function onThemeChange(callback) {
  scheme.addEventListener("change", callback);
}

/** The colours of the present theme, for canvases. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    map: scheme.matches ? MAPS.dark : MAPS.light,
    isDark: scheme.matches,
    ink: read("--ink"),
    soft: read("--ink-soft"),
    line: read("--line-strong"),
    link: read("--link"),
    rim: read("--rim"),
    faint: read("--line"),
    solid: read("--solid"),
    accent: read("--accent"),
    made: read("--made"),
    given: read("--given"),
    empty: read("--empty"),
    predicted: read("--predicted"),
    wrong: read("--wrong"),
    wrongBack: read("--wrong-back"),
    paper: read("--paper"),
    absent: read("--absent"),
  };
}

/** Colour of `value` between `low` and `high`. */
export function colourOf(map, value, low, high) {
  const part = high > low ? (value - low) / (high - low) : 0;
  return map[Math.max(0, Math.min(STEPS - 1, Math.round(part * (STEPS - 1))))];
}

/** The colour bar of the legend. */
export function gradient(map) {
  const stops = [0, 32, 64, 96, 128, 160, 192, 224, 255];
  return `linear-gradient(to right, ${stops.map((i) => map[i]).join(", ")})`;
}
