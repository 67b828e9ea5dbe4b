"use strict";
const element = (id) => document.getElementById(id);

// Colours that differ in hue and lightness, for light and dark backgrounds.
const COLOURS = ["#3b7dd8", "#e0872e", "#3c9d6b", "#c84c5e", "#8566c4", "#2f9fb3", "#b5862b", "#d06aa8", "#6b8a3a", "#7d8894"];

function bytes(count) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let unit = 0;
	while (Math.abs(count) >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
	return `${count.toFixed(unit === 0 || Number.isInteger(count) ? 0 : 1)} ${units[unit]}`;
}
const time = (micros) => micros >= 1e6 ? `${(micros / 1e6).toFixed(2)} s` : `${(micros / 1e3).toFixed(1)} ms`;

function cell(text, className) {
	const td = document.createElement("td");
	td.textContent = text;
	if (className) td.className = className;
	return td;
}

// Shows names with numbers in the element `facts`.
function showFacts(facts) {
	element("facts").replaceChildren(...facts.map(([name, value]) => {
		const fact = document.createElement("div");
		const number = document.createElement("b");
		number.textContent = value;
		const label = document.createElement("span");
		label.textContent = name;
		fact.append(number, label);
		return fact;
	}));
}

// A line of the box that follows the pointer.
function tipLine(name, value, colour) {
	const row = document.createElement("div");
	const swatch = document.createElement("i");
	swatch.style.background = colour ?? "transparent";
	const label = document.createElement("span");
	label.className = "name";
	label.textContent = name;
	const number = document.createElement("span");
	number.textContent = value;
	row.append(swatch, label, number);
	return row;
}

// Shows the box at a position in the chart.
function showTip(x) {
	const tip = element("tip");
	tip.hidden = false;
	const left = x > tip.parentElement.clientWidth / 2 ? x - tip.offsetWidth - 14 : x + 14;
	tip.style.left = `${Math.max(0, left)}px`;
}

// Clears a canvas, at the resolution of the screen. Returns its context, its size, and a function
// from the name of a colour to the colour.
function prepare(canvas) {
	const style = getComputedStyle(document.documentElement);
	const ratio = window.devicePixelRatio || 1;
	const [width, height] = [canvas.clientWidth, canvas.clientHeight];
	canvas.width = width * ratio;
	canvas.height = height * ratio;
	const context = canvas.getContext("2d");
	context.scale(ratio, ratio);
	context.font = "12px system-ui, sans-serif";
	return { context, width, height, colour: (name) => style.getPropertyValue(name) };
}
