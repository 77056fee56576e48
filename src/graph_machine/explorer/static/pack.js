// Reads the binary answers that explorer/pack.py writes.

const MAGIC = 0x31584d47; // "GMX1", little-endian

// Float16Array is too young to rely on; a table of all 65,536 halves is as fast.
let halves = null;

function halfTable() {
  if (halves) return halves;
  halves = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 0) halves[bits] = sign * fraction * 2 ** -24;
    else if (exponent === 31) halves[bits] = fraction ? NaN : sign * Infinity;
    else halves[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return halves;
}

function readArray(buffer, start, entry) {
  const count = entry.shape.reduce((a, b) => a * b, 1);
  const at = start + entry.offset;
  if (entry.dtype === "i4") return new Int32Array(buffer, at, count);
  const values = new Float32Array(count);
  if (entry.dtype === "f2") {
    const table = halfTable();
    const bits = new Uint16Array(buffer, at, count);
    for (let i = 0; i < count; i++) values[i] = table[bits[i]];
    return values;
  }
  const width = entry.shape[entry.shape.length - 1];
  const rows = count / width;
  const scale = new Float32Array(buffer, at, rows * 2);
  const steps = new Uint8Array(buffer, at + rows * 8, count);
  for (let i = 0; i < count; i++) {
    const row = Math.floor(i / width) * 2;
    values[i] = scale[row] + scale[row + 1] * steps[i];
  }
  return values;
}

/** An answer: its header, and arrays that are decoded when they are first asked for. */
export class Pack {
  constructor(buffer) {
    const head = new DataView(buffer);
    if (buffer.byteLength < 8 || head.getUint32(0, true) !== MAGIC) {
      throw new Error("The answer is damaged: it is not in the explorer's format.");
    }
    const length = head.getUint32(4, true);
    this.buffer = buffer;
    this.start = 8 + length;
    this.header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    this.decoded = new Map();
  }

  has(name) {
    return name in this.header.arrays;
  }

  /** {values, shape}, or null where the model has no such quantity. */
  get(name) {
    const entry = this.header.arrays[name];
    if (!entry) return null;
    if (!this.decoded.has(name)) {
      const values = readArray(this.buffer, this.start, entry);
      this.decoded.set(name, { values, shape: entry.shape });
    }
    return this.decoded.get(name);
  }

  /** The part of an array at the given leading indices, without copying. */
  slice(name, ...at) {
    const array = this.get(name);
    if (!array) return null;
    let size = array.values.length;
    let offset = 0;
    for (let axis = 0; axis < at.length; axis++) {
      size /= array.shape[axis];
      offset += at[axis] * size;
    }
    return array.values.subarray(offset, offset + size);
  }
}
