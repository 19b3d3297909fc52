// @ts-check
/** A chat as the frames of its socket make it: turns, answers, and what waits. Pure: nothing here touches the page. */

/** @typedef {Record<string, any>} Row */

export const OPEN = new Set(["waiting", "answering"]);

export class ChatState {
  constructor() {
    this.seq = -1;
    /** @type {Map<string, Row>} */
    this.turns = new Map();
    /** @type {Map<string, Row>} */
    this.answers = new Map();
    /** @type {Row} */
    this.waits = {};
    /** @type {Row} */
    this.chat = {};
  }

  /**
   * Take a frame in; whether anything that is shown changed.
   * @param {Row} frame
   * @param {number} [now] ms, when it came
   */
  apply(frame, now = 0) {
    if (frame.type === "waits") {
      for (const wait of Object.values(frame.waits)) wait.at = now;
      this.waits = frame.waits;
      return true;
    }
    if (frame.type !== "chat" && frame.type !== "changes") return false;
    if (frame.type === "chat") {
      this.turns.clear();
      this.answers.clear();
    }
    const { turns, answers, more, type: _type, ...chat } = frame;
    for (const turn of turns) this.turns.set(turn.id, turn);
    for (const answer of answers) this.answers.set(answer.id, answer);
    for (const piece of more) {
      const answer = this.answers.get(piece.id);
      if (answer) this.answers.set(piece.id, { ...answer, partial: answer.partial + piece.text });
    }
    this.chat = { ...this.chat, ...chat };
    this.seq = frame.seq;
    return true;
  }

  /** The current conversation, in order. */
  current() {
    return [...this.turns.values()].filter((turn) => !turn.replaced).sort((a, b) => a.number - b.number);
  }

  /**
   * The earlier versions of an edited turn, oldest first.
   * @param {Row} turn
   */
  earlier(turn) {
    return [...this.turns.values()].filter((other) => other.replaced && other.number === turn.number);
  }

  /**
   * A contestant's answers to a turn, in the order in which they were drawn.
   * @param {Row} turn
   * @param {number} contestant
   */
  answersTo(turn, contestant) {
    return [...this.answers.values()]
      .filter((answer) => answer.turn === turn.id && answer.contestant === contestant)
      .sort((a, b) => a.number - b.number);
  }

  /** Whether something is being written, or waits to be. */
  get busy() {
    const turns = new Set(this.current().map((turn) => turn.id));
    return [...this.answers.values()].some((answer) => turns.has(answer.turn) && OPEN.has(answer.state));
  }

  /**
   * Whether what was posted is here: another turn with its text, or another draw of its answer.
   * @param {Row} body
   * @param {Set<string>} before the turns and answers when it was posted
   */
  hasArrived(body, before) {
    const drawn = this.answers.get(body.answer);
    if (drawn) return this.answersTo({ id: drawn.turn }, drawn.contestant).some((answer) => !before.has(answer.id));
    return this.current().some((turn) => !before.has(turn.id) && turn.text === body.text?.trim());
  }

  /** The ids of all turns and answers. */
  get ids() {
    return new Set([...this.turns.keys(), ...this.answers.keys()]);
  }

  /** Whether any contestant has written anything. */
  get said() {
    return [...this.answers.values()].some((answer) => answer.messages.length || answer.partial);
  }
}

/**
 * An answer as a list of cards: what was thought, texts, refusals, and calls each with what answered it.
 * @param {Row} answer
 * @returns {Row[]}
 */
export function cardsOf(answer) {
  /** @type {Row[]} */
  const cards = [];
  const open = new Map();
  for (const message of answer.messages) {
    if (message.role === "assistant") {
      if (message.reasoning) cards.push({ kind: "reasoning", text: message.reasoning });
      if (message.content) cards.push({ kind: "text", text: message.content });
      if (message.refusal) cards.push({ kind: "refusal", text: message.refusal });
      for (const call of message.tool_calls ?? []) {
        const card = { kind: "call", name: call.name, arguments: call.arguments, result: null };
        open.set(call.id, card);
        cards.push(card);
      }
    } else if (message.role === "tool" && open.has(message.tool_call_id)) {
      open.get(message.tool_call_id).result = message.content;
      open.delete(message.tool_call_id);
    } else cards.push({ kind: "environment", text: message.content });
  }
  if (answer.partial) cards.push({ kind: "text", text: answer.partial, growing: answer.state === "answering" });
  return cards;
}

/**
 * Which sentence says what an answer waits for, and with what values.
 * @param {Row} wait
 * @param {(seconds: number) => string} time
 * @param {number} now ms
 * @returns {{key: string, values: Row}}
 */
export function waitWords(wait, time, now) {
  const passed = wait.seconds + Math.max(0, now - (wait.at ?? now)) / 1000;
  const values = { t: time(Math.floor(passed)), n: wait.before };
  if (wait.why !== "run") return { key: `chat.wait.${wait.why}`, values };
  const name = wait.run ? "run" : "other_run";
  if (wait.left === null || wait.left === undefined)
    return { key: `chat.wait.${name}`, values: { ...values, run: wait.run } };
  return { key: `chat.wait.${name}_left`, values: { ...values, run: wait.run, left: time(Math.ceil(wait.left)) } };
}
