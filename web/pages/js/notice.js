// The notice area: one message at a time, with buttons for what to do next.
import { $ } from "./page.js";

/** `buttons` are [label, name, action]. Every button closes the notice before its action runs. */
export function showNotice(message, buttons = []) {
	const box = document.createElement("div");
	const text = document.createElement("p");
	text.id = "notice-text";
	text.textContent = message;
	const row = document.createElement("div");
	row.className = "row";
	for (const [label, name, action] of [...buttons, ["Dismiss", "dismiss"]]) {
		const button = document.createElement("button");
		button.textContent = label;
		button.dataset.action = name;
		button.onclick = () => {
			clearNotice();
			$("main").focus({ preventScroll: true }); // the focused button was removed
			action?.();
		};
		row.append(button);
	}
	box.append(text, row);
	$("notice").replaceChildren(box);
}

addEventListener("keydown", ({ key }) => {
	if (key === "Escape") $("notice").querySelector('[data-action="dismiss"]')?.click();
});

export function clearNotice() {
	$("notice").replaceChildren();
}
