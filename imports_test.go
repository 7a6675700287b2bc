package weir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/weirflow/weir"

// forTests are the internal packages that only tests import, and proof/servers, proof/load and proof/regions, which only tests import.
var forTests = []string{"internal/raced", "internal/rawserver", "internal/seeds"}

// floors is the architecture: each package of this repository with those that it may import. An
// import goes down, never up, and never sideways between two faces or two stores. A package that is
// not listed is an error. A name that ends in /... stands for all packages below.
//
// Tests may also import weirtest, the packages of forTests, and the standard library's packages for
// tests; see checkImport.
var floors = map[string][]string{
	".":                    {"internal/..."},
	"keyed":                {".", "internal/..."},
	"adaptive/signals":     {"internal/raced", "internal/seeds"},
	"adaptive":             {".", "adaptive/signals", "internal/..."},
	"failover":             {".", "keyed", "internal/..."},
	"lease":                {".", "keyed", "internal/..."},
	"regions":              {".", "failover", "lease", "internal/..."},             // tests use failover and lease
	"group":                {".", "adaptive", "keyed", "failover", "internal/..."}, // tests use failover: a store that is unavailable
	"policy":               {".", "adaptive", "adaptive/signals", "keyed", "internal/..."},
	"weirhttp":             {".", "adaptive", "policy", "keyed", "failover", "group", "internal/..."}, // the Transport has an adaptive limit for each server
	"sim":                  {".", "policy", "adaptive", "keyed", "internal/..."},
	"weirtest":             {".", "adaptive", "policy", "keyed", "weirhttp", "internal/..."}, // everything but sim
	"internal/asciijson":   nil,
	"internal/attached":    nil,
	"internal/cell":        nil,
	"internal/clientwait":  nil,
	"internal/claim":       nil, // leaves: they import nothing of ours, or another leaf
	"internal/duration":    nil,
	"internal/pause":       nil,
	"internal/heap":        nil,
	"internal/held":        nil,
	"internal/httpsyntax":  nil,
	"internal/jsonscan":    nil,
	"internal/list":        nil,
	"internal/nearest":     nil,
	"internal/outstanding": {"internal/packed", "internal/u128"},
	"internal/packed":      {"internal/u128"},
	"internal/rules":       {"internal/outstanding", "internal/packed", "internal/u128"},
	"internal/raced":       nil, // for tests
	"internal/rawserver":   nil, // for tests
	"internal/rediserror":  nil,
	"internal/regular":     nil,
	"internal/seeds":       nil, // for tests
	"internal/snake":       nil,
	"internal/tally":       nil,
	"internal/topk":        nil,
	"internal/u128":        nil,
	"internal/usage":       {"internal/httpsyntax", "internal/jsonscan", "internal/nearest"},
	"internal/vclock":      {"internal/heap"},
	"internal/refusal":     {"policy"},                                                                     // above the policy: its responses
	"internal/charges":     {".", "internal/duration", "internal/rules"},                                   // above the root: the JSON of its stores
	"internal/overload":    {".", "internal/heap"},                                                         // above the root: its outcomes
	"internal/pacing":      {".", "internal/heap", "internal/list", "internal/overload", "internal/pause"}, // above the root: it uses our limits; tests use overload
	"internal/scripted":    {".", "internal/rules"},                                                        // above the root: how its limits are sent
	"weirclient":           {".", "failover", "lease", "internal/charges", "internal/pause"},               // tests use failover and lease
	"weirredis":            {".", "internal/..."},
	"weirkv":               {".", "failover", "lease", "internal/..."}, // tests use failover and lease
	"weirgopsutil":         {"adaptive/signals"},
	"weirotel":             {".", "keyed", "weirgrpc", "weirhttp"}, // tests use keyed
	"weirplot":             {".", "policy", "sim"},                 // tests use the root and policy
	"weirmemcached":        {"weirkv"},
	"weiretcd":             {"weirkv"},
	"weirnats":             {"weirkv"},
	"weircluster":          {"weirkv", "weirnats", "internal/pause"},
	"weirmysql":            {"weirkv", "internal/regular"},
	"weirsqlite":           {".", "weirkv", "internal/pause"}, // tests use the root
	"weirrueidis":          {".", "weirredis", "internal/pause", "internal/regular"},
	"weirgoredis":          {".", "weirredis"},
	"weirsql":              {".", "internal/..."},
	"weirpgx":              {".", "weirsql", "internal/pause"},
	"weirgrpc":             {".", "adaptive", "keyed", "failover", "group", "policy", "weirhttp", "internal/pacing", "internal/pause", "internal/rules"}, // a client has an adaptive limit for each method
	"weirjwt":              nil,
	"weircaddy":            {"policy", "weirhttp", "internal/httpsyntax", "internal/nearest", "server/active", "server/policyfile", "server/policymetrics"},
	"weircaddy/cmd/caddy":  {"weircaddy"},
	"server":               {".", "policy", "keyed", "failover", "lease", "internal/...", "server/..."},                                                                                                                                                // no product by name
	"server/active":        {".", "adaptive/signals", "policy", "failover", "lease", "regions", "internal/regular", "internal/rules", "internal/vclock", "server/decisions", "server/policyfile", "server/stores", "server/stores/product", "weirjwt"}, // and no face
	"server/decisions":     {".", "policy", "internal/asciijson"},
	"server/face":          {"server/active", "server/plain", "server/policyfile"},
	"server/guard":         nil,
	"server/credential":    nil,
	"server/endpoint":      {"policy", "server/active", "server/descriptors", "server/eventloop", "server/face", "server/guard", "server/listen", "server/policyfile"},
	"server/hook":          {".", "policy", "weirhttp", "internal/...", "server/active", "server/outstanding"},
	"server/outstanding":   {".", "policy", "internal/heap", "internal/pause"},
	"server/...":           {".", "policy", "weirhttp", "internal/...", "server/active", "server/endpoint", "server/face", "server/guard", "server/outstanding", "server/hook", "server/policyfile"}, // a face: see tables
	"server/memory":        {".", "internal/rules"},
	"server/httpapi":       {".", "policy", "failover", "lease", "weirhttp", "weirclient", "internal/...", "server/active", "server/credential", "server/decisions", "server/endpoint", "server/face", "server/guard", "server/outstanding", "server/hook", "server/memory", "server/policyfile"}, // tests use lease and weirclient
	"server/stores":        {".", "policy", "lease", "regions", "internal/nearest", "server/stores/..."},
	"server/stores/...":    {".", "keyed", "policy", "internal/...", "server/room", "server/stores/product", "weirredis", "weirrueidis", "weirkv", "weirmemcached", "weiretcd", "weirnats", "weircluster", "weirmysql", "weirsqlite", "weirsql", "weirpgx"}, // a product: see tables
	"server/admin":         {".", "policy", "failover", "lease", "internal/...", "server/active", "server/dashboard", "server/decisions", "server/face", "server/guard", "server/policyfile", "server/policymetrics", "server/room"},
	"server/dashboard":     nil,
	"server/policymetrics": {".", "policy", "adaptive", "lease", "server/active", "server/decisions"},
	"server/gateway":       {".", "adaptive", "adaptive/signals", "policy", "keyed", "weirhttp", "internal/...", "server/active", "server/face", "server/plain", "server/policyfile", "server/listen", "server/accesslog", "server/policymetrics", "server/room", "server/upstream", "sim"}, // tests use sim: it reads the access log
	"server/resp":          {".", "policy", "failover", "keyed", "internal/...", "server/active", "server/credential", "server/endpoint", "server/eventloop", "server/face", "server/hook", "server/outstanding", "server/policyfile", "server/resp/wire"},
	"server/resp/wire":     nil,
	"server/rls":           {".", "policy", "weirhttp", "keyed", "internal/...", "server/active", "server/endpoint", "server/envoy", "server/face", "server/guard", "server/hook", "server/policyfile"},
	"server/envoy":         {"internal/...", "policy", "server/policyfile"},
	"server/room":          {".", "internal/regular", "policy", "keyed", "internal/heap"},
	"server/descriptors":   nil,
	"server/eventloop":     {"internal/heap", "internal/seeds"}, // tests draw
	"server/listen":        {"policy", "internal/...", "server/descriptors", "server/eventloop", "server/plain"},
	"server/accesslog":     {"sim"}, // in tests
	"server/handover":      nil,
	"server/nginx":         {".", "policy", "internal/...", "server/policyfile"},                                                                         // tests use policyfile: it checks what the import writes
	"server/policyfile":    {".", "adaptive", "adaptive/signals", "policy", "lease", "regions", "internal/...", "server/stores", "weirredis", "weirjwt"}, // tests use adaptive, lease and weirredis: which limits can be leased, and what a URL hides
	"server/plain":         {"internal/...", "server/eventloop"},
	"server/probe":         {".", "adaptive/signals", "policy"},
	"server/upstream":      {".", "policy", "adaptive", "adaptive/signals", "internal/list", "server/descriptors", "server/plain"},
	"cmd/weir":             {".", "keyed", "policy", "sim", "weirplot", "weirtest", "weirredis", "weirrueidis", "weirmysql", "weirsql", "internal/...", "server", "server/envoy", "server/handover", "server/nginx", "server/policyfile", "server/probe", "server/stores"},
	"bench":                {"..."},
	"bench/jsonfloor":      nil,
	"bench/rlsfloor":       nil,
	"proof":                {"..."},
	"proof/gateway":        {"server/active", "server/gateway", "server/policyfile"},
	"proof/nginx":          {"proof/servers"},
	"proof/postgres":       {"..."},
	"proof/redis":          {"..."},
	"proof/regions":        {"..."},
	"proof/kv":             {"..."},
	"proof/cluster":        {"..."},
	"proof/load":           {"..."},
	"proof/overload":       {"proof/servers"},
	"proof/fleet":          {"..."},
	"proof/transport":      {"..."},
	"proof/servers":        nil, // it starts programs, and links none of them
	"proof/traffic":        {"proof/servers"},
	"proof/resp":           {"proof/servers"},
	"proof/service":        {".", "internal/...", "proof/servers", "server", "weirclient"},
	"proof/observe":        {"proof/servers"},
	"proof/room":           {"..."},
	"proof/browser":        {"proof/servers"},
	"proof/edge":           {"proof/servers"},
	"proof/hooks":          {"proof/servers"},
	"proof/caddy":          {"proof/servers"},
	"proof/faces":          {"server/active", "server/policyfile", "weirhttp", "weirclient", "proof/servers"},
	"proof/envoy":          {"server", "proof/servers"},
	"proof/llm":            {"policy", "server/active", "server/gateway", "server/policyfile", "examples/..."},
	"docs/plots":           {".", "internal/rules"},
	"docs/adaptive":        {".", "adaptive", "internal/overload", "internal/raced"},
	"docs/costs":           {".", "internal/heap"},
	"examples/routers":     {".", "keyed", "weirhttp"},
	"examples/...":         {".", "keyed", "policy", "weirhttp", "examples/..."},
}

// tables are the files that register the packages of a floor whose name ends in /...: a package is
// on that floor only if its file imports it.
var tables = map[string]string{
	"server/...":        "server/faces.go",
	"server/stores/...": "server/stores/table.go",
}

// TestImports reads the import lines of every module, tests included, and compares them with
// floors.
func TestImports(t *testing.T) {
	checkTree(t, ".", checkImports, 50)
}

// TestBrokenRulesAreFound plants a violation of each rule, and each must be found.
func TestBrokenRulesAreFound(t *testing.T) {
	file := func(imports ...string) *fstest.MapFile {
		text := "package x\n"
		for _, i := range imports {
			text += "import _ " + strconv.Quote(i) + "\n"
		}
		return &fstest.MapFile{Data: []byte(text)}
	}
	for name, c := range map[string]struct {
		path  string
		file  *fstest.MapFile
		wrong bool
	}{
		"down":                           {"keyed/x.go", file(module, "sync"), false},
		"up":                             {"x.go", file(module + "/keyed"), true},
		"up, in a test":                  {"x_test.go", file(module + "/keyed"), true},
		"sideways":                       {"weirhttp/x.go", file(module + "/sim"), true},
		"between faces":                  {"server/gateway/x.go", file(module + "/server/admin"), true},
		"a new face":                     {"server/json/x.go", file(module+"/server/face", module+"/policy"), false},
		"a face that is not served":      {"server/cbor/x.go", file(module+"/server/face", module+"/policy"), true},
		"a package below a face":         {"server/json/x/x.go", file(), true},
		"a new store":                    {"server/stores/toy/x.go", file(module + "/server/stores/product"), false},
		"a store that nothing opens":     {"server/stores/play/x.go", file(module + "/server/stores/product"), true},
		"between a new face and another": {"server/json/x.go", file(module + "/server/gateway"), true},
		"the active policy and a face":   {"server/active/x.go", file(module + "/server/face"), true},
		"a leaf that imports":            {"internal/u128/x.go", file(module), true},
		"a third party in the root":      {"policy/x.go", file("golang.org/x/net/http2"), true},
		"a third party in a root test":   {"policy/x_test.go", file("github.com/stretchr/testify"), true},
		"a third party in the server":    {"server/x.go", file("github.com/prometheus/client_golang/prometheus"), false},
		"a third party's path like ours": {"policy/x.go", file(module + "flow/x"), true},
		"an unknown package":             {"util/x.go", file(), true},
		"an unknown leaf":                {"internal/helper/x.go", file(), true},
		"weirtest in a test":             {"keyed/x_test.go", file(module + "/weirtest"), false},
		"weirtest in the library":        {"keyed/x.go", file(module + "/weirtest"), true},
		"weirtest that imports sim":      {"weirtest/x.go", file(module + "/sim"), true},
		"seeds in a test":                {"server/room/x_test.go", file(module + "/internal/seeds"), false},
		"seeds in the library":           {"keyed/x.go", file(module + "/internal/seeds"), true},
		"testing in the library":         {"sim/x.go", file("testing"), true},
		"testing in a test":              {"sim/x_test.go", file("testing", "testing/synctest"), false},
		"an example":                     {"examples/a/main.go", file(module, module+"/keyed"), false},
		"a third party in an example":    {"examples/a/main.go", file("github.com/go-chi/chi/v5"), true},
		"an example of routers":          {"examples/routers/x.go", file("github.com/go-chi/chi/v5"), false},
		"an example looking inside":      {"examples/a/main.go", file(module + "/internal/u128"), true},
		"test data":                      {"sim/testdata/x.go", file(module + "/server"), false},
	} {
		wrong, _ := checkImports(t, fstest.MapFS{
			c.path:                   c.file,
			"server/faces.go":        file(module+"/server/face", module+"/server/json"),
			"server/stores/table.go": file(module+"/server/stores/product", module+"/server/stores/toy"),
		})
		if (len(wrong) > 0) != c.wrong {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

func checkImports(t *testing.T, tree fs.FS) (wrong []string, files int) {
	t.Helper()
	eachFile(t, tree, func(name string, src []byte) {
		files++
		f := parse(t, name, src, parser.ImportsOnly)
		pkg := path.Dir(name)
		allowed, known := floorOf(tree, pkg)
		if !known {
			wrong = append(wrong, name+": the package is on no floor: add it to the table in imports_test.go, a face to server/faces.go, a store to server/stores/table.go")
			return
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if why := checkImport(pkg, imp, allowed, strings.HasSuffix(name, "_test.go")); why != "" {
				wrong = append(wrong, name+" imports "+imp+": "+why)
			}
		}
	})
	return wrong, files
}

// floorOf returns what a package may import.
func floorOf(tree fs.FS, pkg string) (allowed []string, known bool) {
	if allowed, known = floors[pkg]; known {
		return allowed, true
	}
	longest := ""
	for name := range floors {
		if prefix, all := strings.CutSuffix(name, "/..."); all && strings.HasPrefix(pkg, prefix+"/") && len(name) > len(longest) {
			longest = name
		}
	}
	if table := tables[longest]; table != "" && !fileImports(tree, table, module+"/"+pkg) {
		return nil, false
	}
	return floors[longest], longest != ""
}

// fileImports reports whether a file imports a package.
func fileImports(tree fs.FS, name, pkg string) bool {
	src, err := fs.ReadFile(tree, name)
	if err != nil {
		return false
	}
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
	return err == nil && slices.ContainsFunc(f.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == strconv.Quote(pkg) })
}

// checkImport returns why an import is wrong; empty if it is allowed.
func checkImport(pkg, imp string, allowed []string, test bool) string {
	rel, own := strings.CutPrefix(imp+"/", module+"/")
	rel = path.Clean(rel)
	switch {
	case own && rel == pkg && test:
		return "" // a test beside the package it tests
	case own && (rel == "weirtest" || slices.Contains(forTests, rel)) && (test || pkg == "proof/servers" || pkg == "proof/load"):
		return ""
	case slices.Contains(forTests, rel):
		return "only tests may import it"
	case own && !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, rel) }):
		return "the floors do not allow it"
	case !own && strings.Contains(strings.Split(imp, "/")[0], ".") && inRoot(pkg):
		return "the root module depends on the standard library alone"
	case (imp == "testing" || strings.HasPrefix(imp, "testing/")) && !test && !slices.Contains([]string{"weirtest", "bench", "proof/servers", "proof/load", "proof/regions"}, pkg):
		return "a program would carry the testing package with it"
	}
	return ""
}

func covers(allowed, rel string) bool {
	prefix, all := strings.CutSuffix(allowed, "...")
	return allowed == rel || all && strings.HasPrefix(rel+"/", prefix)
}

// inRoot reports whether a package is of the root module.
func inRoot(pkg string) bool {
	top, _, _ := strings.Cut(pkg, "/")
	return pkg != "examples/routers" && !slices.Contains([]string{"server", "cmd", "bench", "proof", "weirrueidis", "weirgoredis", "weirgrpc", "weirjwt", "weircaddy", "weirmemcached", "weiretcd", "weirnats", "weirmysql", "weircluster", "weirpgx", "weirsqlite", "weirgopsutil", "weirotel", "weirplot"}, top)
}

// What internal/rules may use of the standard library: nothing that reads a clock, takes a lock,
// shares memory or does I/O. Of package time it may use functions that only compute.
var (
	pureImports = []string{"cmp", "errors", "fmt", "math", "math/big", "math/bits", "reflect", "slices", "strconv", "strings", "time"}
	pureTime    = []string{"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "Weekday", "Sunday", "Monday",
		"Saturday", "Month", "January", "Time", "Date", "Unix", "Location", "UTC"}
)

// TestRulesArePure: the functions of internal/rules depend on their arguments alone.
func TestRulesArePure(t *testing.T) {
	checkTree(t, "internal/rules", checkPurity, 10)
}

// TestImpurityIsFound plants each kind of impurity, and each must be found.
func TestImpurityIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		wrong bool
	}{
		"arithmetic":     {"import (\"math\"; \"time\")\nfunc f(d time.Duration) float64 { return math.Sqrt(float64(d / time.Second)) }", false},
		"a lock":         {"import \"sync\"\nvar mu sync.Mutex", true},
		"an atomic word": {"import \"sync/atomic\"\nvar n atomic.Int64", true},
		"a clock":        {"import \"time\"\nfunc now() int64 { return time.Now().UnixNano() }", true},
		"a zone's file":  {"import \"time\"\nfunc zone() (*time.Location, error) { return time.LoadLocation(\"UTC\") }", true},
		"I/O":            {"import \"os\"\nfunc f() { os.Exit(1) }", true},
		"a goroutine":    {"func f() { go f() }", true},
		"a channel":      {"func f(c chan int) { }", true},
	} {
		wrong, _ := checkPurity(t, fstest.MapFS{"x.go": {Data: []byte("package rules\n" + c.text)}})
		if (len(wrong) > 0) != c.wrong {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

func checkPurity(t *testing.T, tree fs.FS) (wrong []string, files int) {
	t.Helper()
	names, err := fs.Glob(tree, "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files++
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		f := parse(t, name, src, 0)
		for _, spec := range f.Imports {
			imp, _ := strconv.Unquote(spec.Path.Value)
			if !strings.HasPrefix(imp, module+"/internal/") && !slices.Contains(pureImports, imp) {
				wrong = append(wrong, name+" imports "+imp+": the rules are functions of their arguments")
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				wrong = append(wrong, name+" starts a goroutine")
			case *ast.ChanType:
				wrong = append(wrong, name+" has a channel")
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && !slices.Contains(pureTime, n.Sel.Name) {
					wrong = append(wrong, name+" uses time."+n.Sel.Name)
				}
			}
			return true
		})
	}
	return wrong, files
}

// TestModules: the root module has no dependencies, and the other modules use the local root.
func TestModules(t *testing.T) {
	if _, err := os.Stat("go.sum"); !os.IsNotExist(err) {
		t.Error("the root module has a go.sum: it depends on the standard library alone")
	}
	text, err := os.ReadFile("go.mod")
	if err != nil || strings.Contains(string(text), "require") {
		t.Errorf("go.mod: %s, %v", text, err)
	}
}
