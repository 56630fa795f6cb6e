// A page that is opened from disk may not start a Worker. The search's runs in a hidden frame there, which has the same interface.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.inner.document.write(`<!doctype html><script>
        const load = url => new Promise((done, failed) => {
          const script = document.createElement("script")
          Object.assign(script, {src: url, onload: done, onerror: failed})
          document.head.append(script)
        })
        var importScripts = (...urls) => urls.reduce((before, url) => before.then(() => load(url)), Promise.resolve())
        var postMessage = data => parent.iframeWorkers.get(window).dispatchEvent(new MessageEvent("message", {data}))
        </script><script src="${new URL(url, location.href)}"></script>`)
      this.inner.document.close()
      iframeWorkers.set(this.inner, this)
      this.ready = new Promise(done => frame.addEventListener("load", done))
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", {data})))
    }
    terminate() {}
  }
  window.iframeWorkers = new Map()
  window.Worker = IFrameWorker
}
