// What every page needs: elements by id, the state that styles and tests read, and numbers as text.

export const $ = (id) => document.getElementById(id);

export const params = new URLSearchParams(location.search);

/** Live regions are told what is new only, and never progress. */
export function say(id, text) {
	if ($(id).textContent !== text) $(id).textContent = text;
}

export function setState(state, text) {
	document.body.dataset.state = state;
	say("status", text);
}

export function number(value, digits = 3) {
	return Number.isFinite(value) ? value.toLocaleString("en", { maximumSignificantDigits: digits }) : "–";
}

export function binary(value, unit = "") {
	let at = 0;
	for (; value >= 1024 && at < 3; at += 1) value /= 1024;
	return `${number(value)} ${["", "Ki", "Mi", "Gi"][at]}${unit}`.trim();
}

/** What a browser tells of a GPU's name: some tell only its maker. */
export function adapterName({ vendor, architecture, description } = {}) {
	return description || [vendor, architecture].filter(Boolean).join(" ");
}
