// Replaces the page's body whenever the cluster's view has changed; the browser reconnects by itself.
const live = document.getElementById("live");
const summary = document.querySelector("header p");
new EventSource("/changes").addEventListener("view", (event) => {
  const { title, body } = JSON.parse(event.data);
  summary.textContent = title;
  live.innerHTML = body;
});
