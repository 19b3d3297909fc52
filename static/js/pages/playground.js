// @ts-check
/** The playground: an environment played by hand, from a task that is chosen here. */
import { $ } from "../lib/dom.js";
import { Player } from "./playground_page.js";
import { TaskPicker } from "./playground_task.js";

class Playground extends Player {
  constructor() {
    super();
    this.task = new TaskPicker({ rowUrl: this.page.row, send: (frame) => this.send(frame) });
    this.draw();
  }

  get starter() {
    return $("task-start", HTMLButtonElement);
  }

  /** @param {string} sentence */
  refused(sentence) {
    this.task.complain(sentence);
  }
}

new Playground();
