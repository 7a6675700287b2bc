package policy

import "testing"

// TestAliasesOfParameters: a name that some upstream reads as the parameter never gives a client a
// counter of its own.
func TestAliasesOfParameters(t *testing.T) {
	type reading struct {
		value   string
		present bool
	}
	none, empty, seven := reading{"", false}, reading{"", true}, reading{"7", true}
	for query, want := range map[string]struct{ strict, php reading }{
		"sku_id=7":             {seven, seven},
		"%73ku_id=7":           {seven, seven},
		"x=1&sku_id=7&y":       {seven, seven},
		"":                     {none, none},
		"skuid=7":              {none, none},
		"sku_id2=7":            {none, none},
		"sku-id=7":             {none, none},
		"x=sku_id":             {none, none},
		"sku_id=7&sku_id=8":    {empty, empty},
		"sku.id=7":             {empty, seven},
		"sku+id=7":             {empty, seven},
		"sku%20id=7":           {empty, seven},
		"sku[id=7":             {empty, seven},
		"sku%5bid=7":           {empty, seven},
		"sku_id%00=7":          {empty, seven},
		"sku_id%00x=7":         {empty, seven},
		"%20sku_id=7":          {empty, seven},
		"+sku_id=7":            {empty, seven},
		"sku_id[]=7":           {empty, empty},
		"sku_id[x]=7":          {empty, empty},
		"sku.id[]=7":           {empty, empty},
		"[sku_id]=7":           {empty, none},
		"SKU_ID=7":             {empty, none},
		"Sku.Id=7":             {empty, none},
		"sku_id=7&sku.id=8":    {empty, empty},
		"sku.id=8&sku_id=7":    {empty, empty},
		"sku_id=7&SKU_ID=8":    {empty, seven},
		"sku_id=7&sku_id[]=8":  {empty, empty},
		"x=1;sku_id=7":         {empty, none},
		"x=1;SKU.id=7":         {empty, none},
		"sku_id=7;x=1":         {empty, reading{"7;x=1", true}},
		"sku_id=7%3Bx":         {reading{"7;x", true}, reading{"7;x", true}},
		"filter[price]=7&a[]=": {none, none},
	} {
		if value, present, _ := queryValue(query, "sku_id", false); (reading{value, present}) != want.strict {
			t.Errorf("%s, strict: %q, %v", query, value, present)
		}
		if value, present, _ := queryValue(query, "sku_id", true); (reading{value, present}) != want.php {
			t.Errorf("%s, php: %q, %v", query, value, present)
		}
	}
	for _, name := range []string{"sku.id", "sku id", "sku[id"} { // the policy may write the name in another way
		if value, present, _ := queryValue("sku_id=7", name, true); value != "7" || !present {
			t.Errorf("%s, php: %q, %v", name, value, present)
		}
		if value, present, _ := queryValue("sku_id=7", name, false); value != "" || !present {
			t.Errorf("%s: %q, %v", name, value, present)
		}
	}
}

func TestCookies(t *testing.T) {
	for field, want := range map[string]struct {
		value   string
		present bool
	}{
		"session=B":                   {"B", true},
		"a=1; session=B; c=2":         {"B", true},
		`session="B"`:                 {"B", true},
		"session=%42":                 {"B", true},
		"session= B ":                 {"B", true},
		"session=":                    {"", true},
		"":                            {"", false},
		"a=session":                   {"", false},
		"sessions=B":                  {"", false},
		"xsession=B":                  {"", false},
		"session=r1; session=B":       {"", true},
		"session=B; Session=C":        {"", true},
		"SESSION=B":                   {"", true},
		`"session"=B`:                 {"", true},
		"%73ession=B":                 {"", true},
		"session =B":                  {"", true},
		"session":                     {"", true},
		"a=1, session=B":              {"", true},
		"a=1 session=B":               {"", true},
		"session=B, session=C":        {"", true},
		"session=B, session =C":       {"", true},
		"session=B\tsession = C":      {"", true},
		"note=a session of; c=d":      {"", false},
		`session="\\102"`:             {"", true},
		`session="B"C`:                {"", true},
		"session[]=B":                 {"", true},
		"prefs=a,b c=d; session=B":    {"B", true},
		"session=B; other=x session2": {"B", true},
	} {
		if value, present, _ := CookieValue([]string{field}, "session"); value != want.value || present != want.present {
			t.Errorf("%s: %q, %v", field, value, present)
		}
	}
	if value, present, _ := CookieValue([]string{"session=B", "session=C"}, "session"); value != "" || !present {
		t.Errorf("two fields: %q, %v", value, present)
	}
}
