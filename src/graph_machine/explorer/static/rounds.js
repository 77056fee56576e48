// Rounds of a recurrent core: where the page stands among them, and what became of a cell.

const MOST_NAMED = 3; // rounds that are told one by one

/** The round (from 0) that a layer of the page belongs to; null before the first. */
export function roundAt(rounds, layer) {
  if (!rounds || layer < rounds.first) return null;
  return Math.min(rounds.answers.length - 1, Math.floor((layer - rounds.first) / rounds.coreLayers));
}

/** Whether a cell's right answer was given up, up to a round; null: in any round. */
export function isUndone(rounds, cell, round) {
  const lost = rounds?.undone?.[cell] ?? [];
  return lost.some((number) => round === null || number <= round + 1);
}

/** `decided in round 7; undone in round 4`; nothing for a model without rounds. */
export function cellHistory(rounds, cell) {
  if (!rounds) return "";
  const lost = rounds.undone?.[cell] ?? [];
  const decided = `decided in round ${rounds.decided[cell]}`;
  if (!lost.length) return decided;
  if (lost.length > MOST_NAMED) return `${decided}; undone ${lost.length} times, last in round ${lost.at(-1)}`;
  return `${decided}; undone in round${lost.length > 1 ? "s" : ""} ${lost.join(", ")}`;
}
