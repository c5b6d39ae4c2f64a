// What the calculator computes, reads and writes: no page in it. calculator_form.js has the page.

// The arithmetic. Sizes are BigInt, in half bytes: an int4 takes one, and nothing is rounded.
function prices({ layers, kvHeads, headDim, parameters, window, windowed, latent, ...use }) {
  const aLayer = (latent || 2n * kvHeads * headDim) * use.cacheHalves; // of one token
  const open = layers - windowed; // layers that keep every token
  const cache = (n) => aLayer * (open * n + windowed * (n < window ? n : window)); // one sequence

  function tokensThatFit(room) {
    if (room < 0n) return 0n;
    const full = windowed > 0n && cache(window) <= room;
    if (!full) return room / cache(1n);
    return open > 0n ? window + (room - cache(window)) / (aLayer * open) : null; // null: any number
  }

  const weights = parameters * use.weightHalves;
  const room = use.memory - weights; // for the cache
  const outgrown = tokensThatFit(weights);
  return {
    weights,
    aToken: cache(1n),
    aTokenLater: aLayer * open, // once the windows are full
    cache: cache(use.tokens) * use.sequences,
    most: open > 0n ? null : cache(window), // of one sequence; null: no limit
    breakEven: outgrown === null ? null : outgrown + 1n, // null: never
    sequencesThatFit: room < 0n ? 0n : room / cache(use.tokens),
    tokensThatFit: tokensThatFit(room),
  };
}

// What each text field takes. All are whole numbers but the memory, which is in thousandths.
const MILLION = 10n ** 6n;
const FIELDS = {
  layers: { most: MILLION },
  kvHeads: { most: MILLION },
  headDim: { most: MILLION },
  parameters: { most: 10n ** 15n },
  window: { most: 1000n * MILLION, optional: true },
  windowed: { most: MILLION, optional: true },
  latent: { most: MILLION, optional: true },
  tokens: { most: 1000n * MILLION },
  sequences: { most: 1000n * MILLION },
  memory: { most: MILLION, decimals: 3 },
};
const SIZES = ["layers", "kvHeads", "headDim", "parameters", "window", "windowed", "latent"];
const NUMBER = /^(\d+|\d{1,3}(?:,\d{3})+)(?:\.(\d+))?$/;

// { value } or { error }: what is wrong and what would be right.
function parsed(text, { most, optional = false, decimals = 0 }) {
  if (text.trim() === "" && optional) return { value: 0n }; // no window, no latent
  const least = optional ? 0n : 1n; // in thousandths if there are decimals
  const range = decimals
    ? `a number from ${1 / 10 ** decimals} to ${grouped(most)}, with at most ${decimals} decimals`
    : `a whole number from ${least} to ${grouped(most)}`;
  if (text.trim() === "") return { error: `Give ${range}.` };

  const [, digits, fraction = ""] = NUMBER.exec(text.trim()) || [];
  if (digits && fraction.length <= decimals) {
    const value = BigInt(digits.replaceAll(",", "") + fraction.padEnd(decimals, "0"));
    if (value >= least && value <= most * 10n ** BigInt(decimals)) return { value };
  }
  const shown = text.trim().length > 20 ? `${text.trim().slice(0, 20)}…` : text.trim();
  return { error: `“${shown}” is not ${range}.` };
}

// { name of a field: message } where sizes contradict each other, which were read one by one.
function contradictions({ layers, window, windowed }, saysHowMany) {
  if (windowed > layers) return { windowed: `There are only ${grouped(layers)} layers.` };
  if (window && !saysHowMany) return { windowed: "Say how many layers have the window." };
  if (windowed && !window) return { window: "Give the window of these layers, in tokens." };
  return {};
}

function grouped(whole) {
  return whole.toLocaleString("en");
}

function counted(n, one) {
  return `${grouped(n)} ${one}${n === 1n ? "" : "s"}`;
}

function brief(x) {
  if (x >= 1000) return grouped(Math.round(x)); // 1,023 KiB are less than a MiB
  return x.toLocaleString("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
}

function inUnits(halves, base, units) {
  let size = Number(halves) / 2;
  let unit = "bytes";
  for (const larger of units) {
    if (size < base) break;
    size /= base;
    unit = larger;
  }
  return unit === "bytes" ? exact(halves) : `${brief(size)} ${unit}`;
}

function binary(halves) {
  return inUnits(halves, 1024, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
}

function decimal(halves) {
  return inUnits(halves, 1000, ["kB", "MB", "GB", "TB", "PB", "EB"]);
}

function both(halves) {
  return halves < 2000n ? binary(halves) : `${binary(halves)} (${decimal(halves)})`;
}

function exact(halves) {
  return halves % 2n ? `${grouped(halves / 2n)}.5 bytes` : counted(halves / 2n, "byte");
}
