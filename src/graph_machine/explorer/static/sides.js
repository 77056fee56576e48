// Where there is room for words: on a side of a node, and along a link.

const ANGLES = Array.from({ length: 16 }, (_, i) => (i * Math.PI) / 8 - Math.PI / 2);
const AWAY = 2.4; // radii from a node to the word beside it
const EDGE_ROOM = 0.09; // around the unit square, for words
const PARTS = [0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73]; // of a link, for the word upon it
const known = new WeakMap();

function toSegment(x, y, [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const part = ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1);
  const cut = Math.min(1, Math.max(0, part));
  return Math.hypot(x - ax - cut * dx, y - ay - cut * dy);
}

/** {sides, spots} of a layout: an angle per node and a place per link, made once. */
export function freeRoom(layout) {
  if (!known.has(layout)) known.set(layout, { sides: sidesOf(layout), spots: spotsOf(layout) });
  return known.get(layout);
}

/** The point of every link that is farthest from nodes and from the points before it. */
function spotsOf({ places, links, linkValues }) {
  const taken = [];
  return (linkValues ? links : []).map(([from, to]) => {
    let [best, most] = [null, -1];
    for (const part of PARTS) {
      const at = [0, 1].map((axis) => places[from][axis] * (1 - part) + places[to][axis] * part);
      const room = Math.min(...[...places, ...taken].map(([x, y]) => Math.hypot(x - at[0], y - at[1])));
      if (room > most * 1.1) [best, most] = [at, room];
    }
    if (from < to || !links.some(([a, b]) => a === to && b === from)) taken.push(best);
    return best;
  });
}

/** The direction from every node to the point beside it that is farthest from nodes and links. */
function sidesOf(layout) {
  const { places, links, radius } = layout;
  const lines = links.filter(([from, to]) => from !== to).map(([from, to]) => [places[from], places[to]]);
  return places.map(([x, y], node) => {
    let [best, most] = [0, -Infinity];
    for (const angle of ANGLES) {
      const [px, py] = [x + Math.cos(angle) * AWAY * radius, y + Math.sin(angle) * AWAY * radius];
      // More than 3 radii make no difference: then the first direction, up, is taken.
      let room = Math.min(3 * radius, ...[px, py].map((p) => Math.min(p + EDGE_ROOM, 1 + EDGE_ROOM - p)));
      places.forEach(([ox, oy], other) => {
        if (other !== node) room = Math.min(room, Math.hypot(px - ox, py - oy) - radius);
      });
      for (const [from, to] of lines) room = Math.min(room, toSegment(px, py, from, to));
      if (room > most + 1e-9) [best, most] = [angle, room];
    }
    return best;
  });
}
