// Helpers for every page: elements by id, the page state that tests and scripts read, and
// formatting.

export const $ = (id) => document.getElementById(id);

export const params = new URLSearchParams(location.search);

/** Sets the text of an element if it changes: screen readers announce updates of live regions. */
export function setText(id, text) {
	if ($(id).textContent !== text) $(id).textContent = text;
}

export function setState(state, text) {
	document.body.dataset.state = state;
	setText("status", text);
}

export function formatNumber(value, digits = 3) {
	return Number.isFinite(value)
		? value.toLocaleString("en", { maximumSignificantDigits: digits })
		: "–";
}

/** Formats a value with a binary prefix, such as 64 MiB. */
export function formatBinary(value, unit = "") {
	let prefix = 0;
	for (; value >= 1024 && prefix < 3; prefix += 1) value /= 1024;
	return `${formatNumber(value)} ${["", "Ki", "Mi", "Gi"][prefix]}${unit}`.trim();
}

/** Returns the name of a GPU adapter. Some browsers only report its vendor. */
export function adapterName({ vendor, architecture, description } = {}) {
	return description || [vendor, architecture].filter(Boolean).join(" ");
}
