// Runs before the first paint, so that a theme chosen earlier doesn't flash: hence no module.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("fovea.theme");
  } catch {
    // Storage is blocked: the system's theme it is.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
