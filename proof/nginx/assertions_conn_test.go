package nginx

import (
	"time"
)

var limitConn = sourceFile{
	name: "limit_conn.t",
	zones: `limit_conn_zone $binary_remote_addr zone=zone:1m; limit_conn_zone $binary_remote_addr zone=zone2:1m;
		limit_conn_zone $binary_remote_addr zone=custom:1m; limit_conn_zone $http_x_key zone=key:1m;`,
	locations: `location / { limit_conn zone 1; PASS }
		location /1 { limit_conn zone 1; PASS }
		location /zone { limit_conn zone2 1; PASS }
		location /unlim { limit_conn zone 5; PASS }
		location /custom { limit_conn custom 1; limit_conn_status 501; limit_conn_log_level info; PASS }
		location /key { limit_conn key 10; PASS }`,
	assertions: []string{
		"rejected", "rejected different location", "passed different zone", "passed", "limit_conn_status", "limit_conn_log_level",
		"unlimited passed", "limited rejected", "key passed", "overlong key rejected",
	},
	play: func(s *play) {
		leave := s.hold("/w")
		s.status("rejected", 503, s.get("/"))
		s.status("rejected different location", 503, s.get("/1"))
		s.status("passed different zone", 200, s.get("/zone"))
		leave()
		s.eventually("passed", 200, "/1")
		leave = s.hold("/custom/w")
		s.status("limit_conn_status", 501, s.get("/custom"))
		s.logged("limit_conn_log_level", `info: limiting connections by zone "custom"`)
		leave()
		leave = s.hold("/w")
		s.status("unlimited passed", 200, s.get("/unlim"))
		s.status("limited rejected", 503, s.get("/"))
		leave()
		s.status("key passed", 200, s.get("/key", "X-Key", "short"))
		s.overlong("overlong key rejected", "/key")
	},
}

var limitConnComplex = sourceFile{
	name:  "limit_conn_complex.t",
	zones: `limit_req_zone $binary_remote_addr$arg_r zone=req:1m rate=1r/m; limit_conn_zone $binary_remote_addr$arg_c zone=conn:1m;`,
	locations: `location / { limit_conn conn 1; PASS }
		location /w { limit_conn conn 1; PASS }
		location /req { limit_req zone=req burst=2; PASS }`,
	assertions: []string{"limit_req same key", "limit_req different key", "limit_conn same key", "limit_conn different key"},
	play: func(s *play) {
		s.get("/req")
		same := s.start("/req") // it has to wait for a minute
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case got := <-same:
			s.check("limit_req same key", false, "%d at once", got)
		case <-timer.C:
			s.check("limit_req same key", true, "")
		}
		s.status("limit_req different key", 200, s.get("/req?r=2"))
		leave := s.hold("/w")
		s.status("limit_conn same key", 503, s.get("/"))
		s.status("limit_conn different key", 200, s.get("/?c=2"))
		leave()
	},
}

var limitConnDryRun = sourceFile{
	name: "limit_conn_dry_run.t",
	zones: `limit_conn_zone $binary_remote_addr zone=zone:1m; log_format test $uri:$limit_conn_status; access_log test.log test;
		add_header X-Status $limit_conn_status always;`,
	locations: `location /reject { limit_conn zone 1; PASS }
		location /dry { limit_conn zone 1; limit_conn_dry_run on; PASS }
		location / { PASS }`,
	assertions: []string{"passed", "rejected", "rejected dry run", "no limit", "log dry run", "log not found"},
	play: func(s *play) {
		s.decided("passed", 200, "PASSED", "", s.get("/reject"))
		leave := s.hold("/reject")
		s.decided("rejected", 503, "REJECTED", "limiting connections by", s.get("/reject"))
		s.decided("rejected dry run", 404, "REJECTED_DRY_RUN", "limiting connections, dry run", s.get("/dry", "X-Missing", "yes"))
		s.decided("no limit", 200, "", "", s.get("/"))
		leave()
		s.logged("log dry run", "limiting connections, dry run")
		s.unlogged("log not found", "/:-")
	},
}
