// Arrows between places: bent, so that they lie beside straight links and beside their way back.

export const BEND = 0.16; // of an arrow's length, to its left

/** Lengths of a head that is seen on a small board, too, and does not fill a short arrow. */
function headOf(length, radius, width, ratio) {
  return Math.min(0.45 * length, Math.max(3.5 * ratio, 2.2 * width, 0.6 * radius));
}

function head(context, [x, y], [ux, uy], size) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - ux * size - uy * size * 0.45, y - uy * size + ux * size * 0.45);
  context.lineTo(x - ux * size + uy * size * 0.45, y - uy * size - ux * size * 0.45);
  context.fill();
}

const towards = ([x, y], [a, b]) => {
  const length = Math.hypot(a - x, b - y) || 1;
  return [(a - x) / length, (b - y) / length];
};

/** From rim to rim of two nodes. Stroke and fill styles are the caller's. */
export function drawArrow(context, from, to, { radius, width, ratio, bend = 0, hasHead = true }) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const room = Math.hypot(dx, dy) - 2 * radius;
  if (room <= 0) return;
  const middle = [(from[0] + to[0]) / 2 + bend * dy, (from[1] + to[1]) / 2 - bend * dx];
  const [out, back] = [towards(from, middle), towards(to, middle)];
  const start = [from[0] + out[0] * radius, from[1] + out[1] * radius];
  const end = [to[0] + back[0] * radius, to[1] + back[1] * radius];
  const size = hasHead ? headOf(room, radius, width, ratio) : 0;
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(...start);
  // The line ends inside the head: a wide one would stick out of its tip.
  context.quadraticCurveTo(...middle, end[0] + back[0] * size * 0.7, end[1] + back[1] * size * 0.7);
  context.stroke();
  if (hasHead) head(context, end, [-back[0], -back[1]], size);
}

/** From a node back to itself, on the side of an angle. */
export function drawLoop(context, [x, y], angle, { radius, width, ratio }) {
  const size = headOf(2 * radius, radius, width, ratio);
  const round = Math.max(0.75 * radius, 2.5 * ratio);
  const away = radius + 0.55 * round;
  const [cx, cy] = [x + Math.cos(angle) * away, y + Math.sin(angle) * away];
  const open = 2.1; // half of the arc, from its far end to where it meets the node
  context.lineWidth = width;
  context.beginPath();
  context.arc(cx, cy, round, angle - open, angle + open - size / round / 2);
  context.stroke();
  const last = angle + open;
  const tip = [cx + Math.cos(last) * round, cy + Math.sin(last) * round];
  const turn = last + Math.PI / 2 - size / round / 2;
  head(context, tip, [Math.cos(turn), Math.sin(turn)], size);
}
