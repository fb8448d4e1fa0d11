// Runs before the first paint, so that a stored theme does not flash; modules run too late for that.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("fovea.theme");
  } catch {
    // Storage is blocked: use the system's theme.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
