// The conversation as data: what was said, what of it the model sees, and what this browser keeps of it.
import { splitThoughts } from "./markdown.js";

const storageName = "fovea.chat";
const mostTurns = 200;
const mostCharacters = 1 << 20;

// turns: { role: "user", content } and { role: "assistant", content, model, note, failure, full } by turns, a
// question and its answer; `unsent` in both of those that no longer fit into the context.
export class Conversation {
  turns = [];

  // The messages for the answer at `index`. Questions that never got an answer are left out, as templates want
  // the roles by turns; thoughts are, as models are not told their old ones.
  messages(index = this.turns.length) {
    const out = [];
    for (let i = 0; i < index; i += 2) {
      const question = this.turns[i], answer = i + 1 < index ? this.turns[i + 1] : null;
      if (question.unsent || (answer?.failure && answer.content === "")) continue;
      out.push({ role: "user", content: question.content });
      if (answer) out.push({ role: "assistant", content: splitThoughts(answer.content).answer });
    }
    return out;
  }

  // Leaves the oldest question that is still sent, and its answer, out from now on; false when it is the last.
  dropOldest() {
    const oldest = this.turns.findIndex((turn) => !turn.unsent);
    if (oldest < 0 || oldest + 2 >= this.turns.length) return false;
    this.turns[oldest].unsent = this.turns[oldest + 1].unsent = true;
    return true;
  }

  load() {
    try {
      const { turns } = JSON.parse(localStorage.getItem(storageName) ?? "{}");
      if (Array.isArray(turns) && turns.length % 2 === 0 && turns.every(isTurn)) this.turns = turns;
    } catch {
      // Storage is blocked, or holds what this page did not write: a new conversation.
    }
  }

  // The newest turns, as many as may be kept. False when this browser keeps none.
  save() {
    let first = this.turns.length, size = 0;
    while (first >= 2 && this.turns.length - first + 2 <= mostTurns) {
      size += JSON.stringify(this.turns[first - 2]).length + JSON.stringify(this.turns[first - 1]).length;
      if (size > mostCharacters) break;
      first -= 2;
    }
    try {
      if (first === this.turns.length) localStorage.removeItem(storageName);
      else localStorage.setItem(storageName, JSON.stringify({ turns: this.turns.slice(first) }));
      return true;
    } catch {
      return false;
    }
  }
}

const isTurn = (turn, i) => turn?.role === (i % 2 === 0 ? "user" : "assistant") && typeof turn.content === "string";
