package weir_test

import (
	"go/ast"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// TestNothingIsDrawnAtRandom reads the tests of every module. They draw random numbers from
// internal/seeds, or from a source with a fixed seed, so that `make test` makes the same choices
// each time.
func TestNothingIsDrawnAtRandom(t *testing.T) {
	checkTree(t, ".", drawnAtRandom, 100)
}

// TestRandomDrawsAreFound plants each kind of random draw, and each must be found.
func TestRandomDrawsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		wrong bool
	}{
		"a global function":          {`import "math/rand/v2"; var _ = rand.IntN(3)`, true},
		"a global function, renamed": {`import r "math/rand/v2"; var _ = r.Uint64()`, true},
		"a source with a seed":       {`import "math/rand/v2"; var _ = rand.New(rand.NewPCG(1, 2))`, false},
		"a distribution":             {`import "math/rand/v2"; var _ = rand.NewZipf(nil, 1, 2, 3)`, false},
		"a type":                     {`import "math/rand/v2"; var _ *rand.Rand`, false},
		"the old package":            {`import "math/rand"; var _ = rand.New(rand.NewSource(1))`, true},
		"testing/quick":              {`import _ "testing/quick"`, true},
		"a hash seed":                {`import "hash/maphash"; var _ = maphash.MakeSeed()`, true},
		"rapid without a seed":       {`import _ "pgregory.net/rapid"`, true},
		"rapid with a seed":          {`import _ "pgregory.net/rapid"; const _ = "rapid.seed"`, false},
	} {
		wrong, _ := drawnAtRandom(t, fstest.MapFS{"p/x_test.go": &fstest.MapFile{Data: []byte("package p\n" + c.text + "\n")}})
		if (len(wrong) > 0) != c.wrong {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

// drawnAtRandom returns the unseeded draws of tests, and the number of test files. In proof/ every
// file counts as a test.
func drawnAtRandom(t *testing.T, tree fs.FS) (wrong []string, files int) {
	t.Helper()
	rapid, seeded := map[string]bool{}, map[string]bool{}
	eachFile(t, tree, func(name string, src []byte) {
		switch {
		case name == "proof/servers/address.go": // ports, which make no difference to a test
			return
		case !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "proof/"):
			return
		}
		files++
		f := parse(t, name, src, 0)
		seeded[path.Dir(name)] = seeded[path.Dir(name)] || strings.Contains(string(src), `"rapid.seed`)
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			switch imp {
			case "math/rand", "testing/quick":
				wrong = append(wrong, name+" imports "+imp+": draw from internal/seeds")
			case "pgregory.net/rapid":
				rapid[path.Dir(name)] = true
			case "math/rand/v2", "hash/maphash":
				local := map[string]string{"math/rand/v2": "rand", "hash/maphash": "maphash"}[imp]
				if spec.Name != nil {
					local = spec.Name.Name
				}
				for _, call := range callsOf(f, local) {
					wrong = append(wrong, name+" calls "+imp+"'s "+call+", which has no seed: draw from internal/seeds")
				}
			}
		}
	})
	for dir := range rapid {
		if !seeded[dir] {
			wrong = append(wrong, dir+` uses rapid without a seed: its TestMain needs flag.Set("rapid.seed", seeds.Text())`)
		}
	}
	return wrong, files
}

// callsOf returns the calls of functions of an imported package that draw without a seed.
func callsOf(f *ast.File, local string) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fun := call.Fun
		if generic, ok := fun.(*ast.IndexExpr); ok {
			fun = generic.X
		}
		s, ok := fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == local && x.Obj == nil {
			switch name := s.Sel.Name; name {
			case "New", "NewPCG", "NewChaCha8", "NewZipf", "Comparable", "String", "Bytes", "WriteComparable":
			default:
				names = append(names, name)
			}
		}
		return true
	})
	return names
}
