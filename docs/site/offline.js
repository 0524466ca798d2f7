// From a file, a browser may not read other pages to quote them: results of a search are shown without quotations there.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
