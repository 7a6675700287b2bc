package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weirflow/weir/weirplot"
)

// checkOutputs checks the name of the page, and makes the directories for plots, before any log is read.
func (f *replayFlags) checkOutputs(inputs []string) error {
	if f.decisions != "" {
		if err := checkOutput("--decisions", f.decisions, inputs); err != nil {
			return err
		}
		if isSameFile(f.decisions, f.html) {
			return &usageError{fmt.Errorf("--html and --decisions name the same file, %s: name two", f.html)}
		}
	}
	if f.html != "" {
		if err := checkOutput("--html", f.html, inputs); err != nil {
			return err
		}
	}
	for _, to := range [2][2]string{{"--svg", f.svg}, {"--png", f.png}} {
		if to[1] == "" {
			continue
		}
		if info, err := os.Stat(to[1]); err == nil && !info.IsDir() {
			return &usageError{fmt.Errorf("%s %s: it is a file: name a directory", to[0], to[1])}
		}
		if err := os.MkdirAll(to[1], 0o777); err != nil {
			return fileError(err)
		}
	}
	return nil
}

// isSameFile reports whether two names are those of one file, which need not be there yet.
func isSameFile(a, b string) bool {
	if of, err := os.Stat(a); err == nil {
		other, err := os.Stat(b)
		return err == nil && os.SameFile(of, other)
	}
	return filepath.Clean(a) == filepath.Clean(b)
}

// draw writes the page and the plots.
func (f *replayFlags) draw(page func(io.Writer) error, plots func() ([]*weirplot.Plot, error)) error {
	if f.html != "" {
		if err := writeFile(f.html, page); err != nil {
			return err
		}
	}
	return f.drawPlots(plots)
}

// drawPlots writes plots to the directories of --svg and --png.
func (f *replayFlags) drawPlots(of func() ([]*weirplot.Plot, error)) error {
	if f.svg == "" && f.png == "" {
		return nil
	}
	plots, err := of()
	if err != nil {
		return err
	}
	for _, p := range plots {
		for _, to := range [2][2]string{{"svg", f.svg}, {"png", f.png}} {
			if to[1] == "" {
				continue
			}
			name := filepath.Join(to[1], p.Name+"."+to[0])
			if err := writeFile(name, func(w io.Writer) error { return p.Encode(w, to[0]) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeFile creates a file and writes it.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fileError(err)
	}
	return errors.Join(write(f), f.Close())
}
