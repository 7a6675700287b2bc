// Package weirplot draws reports of package sim: as plots, and as an HTML page with them. All text of logs in them is
// made harmless.
package weirplot
