// The view of one turn and of its errors.
import { ApiError } from "./api.js";
import { copyButton, el, setText } from "./dom.js";
import { showMarkdown, splitThoughts } from "./markdown.js";

const button = (label, name, onclick, kind) => el("button", { type: "button", class: `ghost small ${kind}`, "aria-label": name, onclick }, label);

// act: the chat's { edit(turn, text), again(), ways(turn) }.
export class MessageView {
  #turn;
  #act;
  #body = el("div", { class: "body" });
  #meta = el("p", { class: "meta" });
  #actions = el("div", { class: "actions" });
  #notice = el("div", {});
  #thoughts = null;
  #answer = el("div", { class: "text" });
  #who = el("h3", { class: "who" });

  constructor(turn, act) {
    this.#turn = turn;
    this.#act = act;
    const mine = turn.role === "user";
    this.item = el("li", { class: turn.role }, this.#who, this.#body, mine ? null : this.#notice, mine ? null : this.#meta, this.#actions);
    this.#body.append(this.#answer);
    if (mine) {
      this.#actions.append(copyButton("Copy", "Copy message", () => turn.content),
        button("Edit", "Edit message", () => this.#edit(), "change"));
    } else {
      this.#actions.append(copyButton("Copy", "Copy answer", () => splitThoughts(turn.content).answer),
        button("Regenerate", "Regenerate answer", () => act.again(), "again"));
    }
    this.show();
  }

  // `meta` is the note shown while the answer streams; afterwards the turn has its own.
  show({ streaming = false, meta = this.#turn.note ?? "" } = {}) {
    const turn = this.#turn;
    this.item.classList.toggle("streaming", streaming);
    this.item.classList.toggle("unsent", turn.unsent === true);
    setText(this.#who, (turn.role === "user" ? "You" : turn.model || "Model") + (turn.unsent ? " · no longer sent" : ""));
    if (turn.role === "user") return setText(this.#answer, turn.content);
    const { thoughts, answer, open } = splitThoughts(turn.content);
    this.#showThoughts(thoughts, open && streaming);
    showMarkdown(this.#answer, answer);
    setText(this.#meta, meta);
    this.#actions.hidden = streaming || (turn.failure !== undefined && turn.content === "");  // the failure has actions of its own
    if (streaming) return this.#notice.replaceChildren();
    if (turn.failure) this.#notice.replaceChildren(failureBlock(turn.failure, this.#act.ways(turn)));
    else if (turn.full) this.#notice.replaceChildren(el("div", { class: "notice" }, el("p", {}, "The context is full, so the answer was cut."), buttons(this.#act.ways(turn))));
    else if (turn.content === "" && !turn.stopped) this.#notice.replaceChildren(el("p", { class: "empty" }, "The model ended its answer at once."));
    else this.#notice.replaceChildren();
  }

  #showThoughts(thoughts, open) {
    if (thoughts === "" && !open) {
      this.#thoughts?.item.remove();
      this.#thoughts = null;
      return;
    }
    if (this.#thoughts === null) {
      const name = el("summary", {}), text = el("div", { class: "text" });
      this.#thoughts = { name, text, item: el("details", { class: "thoughts" }, name, text) };
      this.#body.prepend(this.#thoughts.item);
    }
    setText(this.#thoughts.name, open ? "Thinking …" : "Thoughts");
    showMarkdown(this.#thoughts.text, thoughts);
  }

  #edit() {
    const text = el("textarea", { rows: "3", "aria-label": "Edit message" });
    text.value = this.#turn.content;
    const leave = () => {
      form.replaceWith(this.#answer);
      this.#actions.hidden = false;
      this.#actions.querySelector("[aria-label='Edit message']").focus();
    };
    const form = el("form", { class: "edit", onsubmit: (event) => {
      event.preventDefault();
      if (text.value.trim() !== "") this.#act.edit(this.#turn, text.value.trim());
    } }, text, el("p", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Send"), el("button", { type: "button", class: "ghost", onclick: leave }, "Cancel"),
      el("span", { class: "note" }, "Later messages are removed.")));
    text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        leave();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.#answer.replaceWith(form);
    this.#actions.hidden = true;
    text.focus();
  }
}

const buttons = (ways) => (ways.length === 0 ? null
  : el("p", { class: "buttons" }, ...ways.map(([label, onclick]) => el("button", { type: "button", class: "ghost outlined", onclick }, label))));

// An error in the form that a turn stores.
export function failureOf(error) {
  const about = [error.status ? `${error.status} ${error.type ?? ""}`.trim() : null, error.code,
    error.param ? `at ${error.param}` : null, error.requestId ? `request ${error.requestId}` : null].filter(Boolean).join(" · ");
  const message = error instanceof ApiError ? error.message : `The answer can't be read: ${error.message}`;
  return { message, about, status: error.status ?? 0, code: error.code ?? null };
}

export function failureBlock(failure, ways) {
  return el("div", { class: "failure", role: "alert" }, el("p", {}, failure.message),
    failure.about ? el("p", { class: "about" }, failure.about) : null, buttons(ways));
}
