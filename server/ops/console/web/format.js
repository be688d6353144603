// Numbers, times and bytes as people read them.

const grouped = new Intl.NumberFormat("en-US");

// dash stands for an unknown value.
export const dash = "–";

export function count(n) {
  return n === null || n === undefined ? dash : grouped.format(n);
}

// plural is "1 waiter", "2 waiters".
export function plural(n, one, many = one + "s") {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function bytes(n) {
  if (n === null || n === undefined) return dash;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

// millis is a latency.
export function millis(ms) {
  if (ms === null || ms === undefined) return dash;
  if (ms >= 1000) return duration(ms);
  return `${ms >= 10 ? Math.round(ms) : Math.round(ms * 10) / 10} ms`;
}

// duration is for people: two units at the most.
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return dash;
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 1) return "under 1 s";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const i = parts.findIndex(([unit]) => s >= unit);
  const [unit, name] = parts[i];
  const head = `${Math.floor(s / unit)} ${name}`;
  if (i === parts.length - 1) return head;
  const [below, belowName] = parts[i + 1];
  const rest = Math.floor((s % unit) / below);
  return rest ? `${head} ${rest} ${belowName}` : head;
}

const two = (n) => String(n).padStart(2, "0");

// time is the time of day, with the date if it is not today's. now is in ms.
export function time(at, now = Date.now()) {
  if (!at) return dash;
  const d = new Date(at), today = new Date(now);
  const clock = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  if (d.toDateString() === today.toDateString()) return clock;
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock}`;
}

// zone is the time zone in which times are shown, as UTC+01:00.
export function zone(now = Date.now()) {
  const minutes = -new Date(now).getTimezoneOffset(), size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

// session shortens a session's id to the part that differs from others.
export function session(id) {
  return id && id.length > 12 ? `${id.slice(0, 5)}…${id.slice(-5)}` : id || dash;
}

// middle shortens a long text in its middle, because the ends of paths and node names differ.
export function middle(text, most) {
  if (text.length <= most) return text;
  const head = Math.ceil((most - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
}

// visible makes control characters and marks that change the direction of text visible.
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

export function decode(base64) {
  const binary = atob(base64);
  const out = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) out[i] = binary.charCodeAt(i);
  return out;
}

// text reads bytes as UTF-8; other bytes become U+FFFD.
export function text(data) {
  return new TextDecoder().decode(data);
}

// hex is a dump with 16 bytes a line; narrow ones have 8.
export function hex(data, width = 16) {
  const lines = [];
  for (let at = 0; at < data.length; at += width) {
    const row = data.subarray(at, at + width);
    const codes = Array.from(row, (b) => b.toString(16).padStart(2, "0"));
    const chars = Array.from(row, (b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : "·"));
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes.join(" ").padEnd(width * 3 - 1)}  ${chars.join("")}`);
  }
  return lines.join("\n");
}
