// The conversation as data: its turns, which of them are sent to the model, and what the browser stores.
import { splitThoughts } from "./markdown.js";

const storageName = "fovea.chat";
const mostTurns = 200;
const mostCharacters = 1 << 20;

// turns: { role: "user", content } and { role: "assistant", content, model, note, failure, full } alternate, a
// question and its answer. `unsent` marks both when they no longer fit into the context.
export class Conversation {
  turns = [];

  // The messages for the answer at `index`. Unanswered questions are left out, because chat templates require
  // alternating roles, and so is earlier reasoning, which models expect to be removed.
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

  // Excludes the oldest question that is still sent, and its answer, from now on; false if it is the last one.
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
      // Storage is blocked or has invalid data: start a new conversation.
    }
  }

  // Stores the newest turns, up to the limits. False if the browser stores none.
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
