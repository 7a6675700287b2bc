package weir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// checkTree runs a check of source files on a folder of this repository. A check returns what is wrong,
// and how many files it has read: fewer than least means that it has missed some.
func checkTree(t *testing.T, folder string, check func(*testing.T, fs.FS) ([]string, int), least int) {
	t.Helper()
	wrong, files := check(t, os.DirFS(folder))
	for _, w := range wrong {
		t.Error(w)
	}
	if files < least {
		t.Errorf("only %d files were read", files)
	}
}

// eachFile calls a function with each Go file of a tree, except for testdata.
func eachFile(t *testing.T, tree fs.FS, do func(name string, src []byte)) {
	t.Helper()
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		do(name, src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func parse(t *testing.T, name string, src []byte, mode parser.Mode) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, src, mode)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
