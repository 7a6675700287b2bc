// Command plots draws what each limit does with the same requests: docs/plots/*.svg, for
// docs/algorithms.md, docs/guarantees.md and the README. The limits themselves decide. From the
// root of the repository:
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
	for _, p := range pictures() {
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

// picture is a file and what draws it.
type picture struct {
	file string
	draw func() ([]byte, error)
}

func pictures() []picture {
	all := []picture{{"overview.svg", drawOverview}, {"given_back.svg", drawGivenBack}}
	for _, p := range plots() {
		all = append(all, picture{p.file, p.draw})
	}
	return all
}
