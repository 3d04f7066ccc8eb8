// Search in pages opened from files, where browsers refuse workers: the worker's script runs in a
// hidden frame instead. It takes the place of the script that the theme would fetch from a host.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => {
        frame.addEventListener("load", () => {
          const scope = frame.contentWindow;
          scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = frame.contentDocument.createElement("script");
          script.src = url;
          script.addEventListener("load", () => resolve(scope));
          frame.contentDocument.body.append(script);
        });
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.ready.then((scope) => scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
