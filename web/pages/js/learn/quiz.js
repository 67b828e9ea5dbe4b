// The quiz. Its questions and answers are in the page, so that it works without a script.
import { $ } from "../page.js";

export function startQuiz() {
	const questions = [...document.querySelectorAll(".question")];
	const right = new Set();
	const answered = new Set();
	for (const question of questions) {
		question.addEventListener("change", ({ target }) => {
			const isRight = target.value === question.dataset.right;
			// The first answer counts.
			if (!answered.has(question) && isRight) right.add(question);
			answered.add(question);
			question.dataset.result = isRight ? "right" : "wrong";
			const details = question.querySelector("details");
			details.querySelector("summary").textContent = isRight ? "Right" : "Not right. The answer";
			details.open = true;
			$("quiz-score").textContent =
				`${right.size} of ${answered.size} right at the first try, ${questions.length} questions.`;
		});
	}
}
