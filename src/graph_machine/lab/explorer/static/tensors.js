// Reads the safetensors that explorer/forward.py writes.

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

/** An answer: its header, and tensors that are decoded when they are first asked for. */
export class Tensors {
  constructor(buffer) {
    try {
      const length = Number(new DataView(buffer).getBigUint64(0, true));
      this.entries = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
      this.header = JSON.parse(this.entries.__metadata__.header);
      this.bytes = buffer.slice(8 + length); // a new start, so that every tensor is aligned
    } catch {
      throw new Error("The answer is damaged: it is not in the explorer's format.");
    }
    this.decoded = new Map();
  }

  has(name) {
    return name in this.entries;
  }

  /** {values, shape}, or null where the model has no such quantity. */
  get(name) {
    if (!this.has(name)) return null;
    if (!this.decoded.has(name)) this.decoded.set(name, { values: this.read(name), shape: this.entries[name].shape });
    return this.decoded.get(name);
  }

  /** The part of an array at the given leading indices, without copying. */
  slice(name, ...at) {
    const array = this.get(name);
    if (!array) return null;
    let size = array.values.length;
    let offset = 0;
    for (let axis = 0; axis < at.length; axis++) {
      if (at[axis] >= array.shape[axis]) return null; // such as slots before the first referral
      size /= array.shape[axis];
      offset += at[axis] * size;
    }
    return array.values.subarray(offset, offset + size);
  }

  read(name) {
    const { dtype, shape, data_offsets: [at] } = this.entries[name];
    const count = shape.reduce((a, b) => a * b, 1);
    if (dtype === "I32") return new Int32Array(this.bytes, at, count);
    if (dtype === "F32") return new Float32Array(this.bytes, at, count);
    const table = halfTable();
    if (dtype === "F16") return Float32Array.from(new Uint16Array(this.bytes, at, count), (bits) => table[bits]);
    // 255 steps between the least and the greatest value of each row.
    const rows = this.read(`${name}.steps`);
    const width = shape[shape.length - 1];
    return Float32Array.from(new Uint8Array(this.bytes, at, count), (step, i) => {
      const row = Math.floor(i / width) * 2;
      return rows[row] + rows[row + 1] * step;
    });
  }
}

/** One entry of the first axis of all tensors: what belongs to one node. */
export class Part {
  constructor(tensors, place) {
    this.tensors = tensors;
    this.place = place;
  }

  has(name) {
    return this.tensors.has(name);
  }

  get(name) {
    const whole = this.tensors.get(name);
    return whole && { values: this.slice(name), shape: whole.shape.slice(1) };
  }

  slice(name, ...at) {
    return this.tensors.slice(name, this.place, ...at);
  }
}
