// Command plots draws what each limit admits of the same requests: docs/plots/*.svg, which docs/algorithms.md shows. It asks the limits
// themselves. From the root of the repository:
//
//	go run ./docs/plots
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := filepath.Join("docs", "plots")
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	for _, p := range plots() {
		text, err := p.draw()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, p.file), text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "plots:", err)
			os.Exit(1)
		}
	}
}
