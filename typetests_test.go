package weir_test

import (
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirflow/weir/internal/rules"
)

// TestNoTypeTests: outside the root, internal/rules and weirtest, code reads a limit's descriptor
// (rules.KindOf, rules.ParamsOf) instead of testing its type. A new algorithm would have to be added
// to each type test, and no error would remind of it.
func TestNoTypeTests(t *testing.T) {
	checkTree(t, ".", checkTypeTests, 50)
}

// TestTypeTestsAreFound plants each kind of type test, and each must be found.
func TestTypeTestsAreFound(t *testing.T) {
	const begin = "package x\nimport (\"reflect\"; \"" + module + "\"; \"" + module + "/internal/rules\")\nfunc f(l weir.Limit, p rules.Params) "
	for name, c := range map[string]struct {
		path, text string
		wrong      bool
	}{
		"an assertion":              {"policy/x.go", "{ _ = l.(weir.WarmUp) }", true},
		"an assertion of a pointer": {"policy/x.go", "{ _ = any(l).(*weir.WarmUp) }", true},
		"a switch":                  {"server/x.go", "{ switch l.(type) { case nil, weir.Concurrency: } }", true},
		"on parameters":             {"lease/x.go", "{ _ = p.(rules.FixedWindow) }", true},
		"by reflection":             {"lease/x.go", "{ _ = reflect.TypeFor[weir.FixedWindow]() }", true},
		"by name":                   {"lease/x.go", "bool { return weir.Algorithm(l) == \"warm_up\" }", true},
		"on a descriptor's name":    {"lease/x.go", "bool { return \"warm_up\" != rules.KindOf(l).Name }", true},
		"a name that is printed":    {"lease/x.go", "string { return \"warm_up\" }", false},
		"a capability":              {"policy/x.go", "{ _ = p.(rules.Leased) }", false},
		"a limit that is made":      {"policy/x.go", "weir.Limit { return weir.WarmUp{} }", false},
		"in the root":               {"x.go", "{ _ = l.(weir.WarmUp) }", false},
		"in a test":                 {"policy/x_test.go", "{ _ = l.(weir.WarmUp) }", false},
		"in the model":              {"weirtest/x.go", "{ _ = l.(weir.WarmUp) }", false},
	} {
		wrong, _ := checkTypeTests(t, fstest.MapFS{c.path: {Data: []byte(begin + c.text)}})
		if (len(wrong) > 0) != c.wrong {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

// mayTestTypes has the directories whose files may test the types of limits: those of the
// algorithms, the reference model, which shares nothing with them, and modules that are never
// published.
var mayTestTypes = []string{".", "internal/rules", "weirtest", "bench", "proof"}

func checkTypeTests(t *testing.T, tree fs.FS) (wrong []string, files int) {
	t.Helper()
	goNames, names := map[string]bool{}, map[string]bool{}
	for _, k := range rules.Kinds() {
		goNames[k.GoName], names[strconv.Quote(k.Name)] = true, true
	}
	eachFile(t, tree, func(name string, src []byte) {
		dir, _, _ := strings.Cut(path.Dir(name)+"/", "/")
		if strings.HasSuffix(name, "_test.go") || slices.Contains(mayTestTypes, dir) || slices.Contains(mayTestTypes, path.Dir(name)) {
			return
		}
		files++
		f := parse(t, name, src, 0)
		for _, what := range typeTests(f, goNames, names) {
			wrong = append(wrong, name+" "+what+": ask rules.KindOf or rules.ParamsOf what the algorithm is like")
		}
	})
	return wrong, files
}

// typeTests returns the type tests on limits in a file.
func typeTests(f *ast.File, goNames, names map[string]bool) (found []string) {
	limit := func(e ast.Expr) {
		if star, ok := e.(*ast.StarExpr); ok {
			e = star.X
		}
		if s, ok := e.(*ast.SelectorExpr); ok && goNames[s.Sel.Name] {
			if x, ok := s.X.(*ast.Ident); ok && (x.Name == "weir" || x.Name == "rules") {
				found = append(found, "tests for "+x.Name+"."+s.Sel.Name)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeAssertExpr:
			limit(n.Type)
		case *ast.TypeSwitchStmt:
			for _, clause := range n.Body.List {
				for _, e := range clause.(*ast.CaseClause).List {
					limit(e)
				}
			}
		case *ast.IndexExpr:
			if s, ok := n.X.(*ast.SelectorExpr); ok && s.Sel.Name == "TypeFor" {
				limit(n.Index)
			}
		case *ast.BinaryExpr:
			for _, e := range []ast.Expr{n.X, n.Y} {
				if text, ok := e.(*ast.BasicLit); ok && names[text.Value] && (n.Op == token.EQL || n.Op == token.NEQ) {
					found = append(found, "tests for the name "+text.Value)
				}
			}
		}
		return true
	})
	return found
}
