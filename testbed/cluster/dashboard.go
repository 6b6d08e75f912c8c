// A Ray dashboard that serves the job requests of the KubeRay operator for all Ray clusters. The operator uses it as its HTTP proxy, so
// the requested host is the head service of the Ray cluster and identifies it.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The default run time of a job.
const defaultRun = 5 * time.Second

type job struct {
	began   time.Time
	stopped bool
}

// serveDashboard serves until the process is killed. A job that was not posted starts with the first request for its status, like a job of
// a submitter pod. A job is RUNNING for `runs`, then SUCCEEDED, or FAILED when its id contains "fail".
func serveDashboard(listen string, runs time.Duration) error {
	var lock sync.Mutex
	jobs := map[string]*job{}
	find := func(host, id string) *job {
		key := host + "/" + id
		if jobs[key] == nil {
			jobs[key] = &job{began: time.Now()}
		}
		return jobs[key]
	}
	answer := func(w http.ResponseWriter, value any) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(value)
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Println(time.Now().Format(time.RFC3339), r.Method, r.Host, r.URL.Path)
		id, isJob := strings.CutPrefix(r.URL.Path, "/api/jobs/")
		switch {
		case isJob && id == "" && r.Method == http.MethodPost:
			var body struct {
				SubmissionID string `json:"submission_id"`
			}
			json.NewDecoder(r.Body).Decode(&body)
			find(r.Host, body.SubmissionID)
			answer(w, map[string]string{"job_id": body.SubmissionID, "submission_id": body.SubmissionID})
		case isJob && strings.HasSuffix(id, "/stop"):
			find(r.Host, strings.TrimSuffix(id, "/stop")).stopped = true
			answer(w, map[string]bool{"stopped": true})
		case isJob && strings.HasSuffix(id, "/logs"):
			answer(w, map[string]string{"logs": ""})
		case isJob && id != "":
			job := find(r.Host, id)
			ended := job.began.Add(runs)
			status, message, end := "RUNNING", "Job is currently running.", int64(0)
			switch {
			case job.stopped:
				status, message, end = "STOPPED", "Job was intentionally stopped.", time.Now().UnixMilli()
			case time.Now().After(ended) && strings.Contains(id, "fail"):
				status, message, end = "FAILED", "Job entrypoint command failed with exit code 1.", ended.UnixMilli()
			case time.Now().After(ended):
				status, message, end = "SUCCEEDED", "Job finished successfully.", ended.UnixMilli()
			}
			answer(w, map[string]any{
				"job_id": "01000000", "submission_id": id, "type": "SUBMISSION", "entrypoint": "",
				"status": status, "message": message, "start_time": job.began.UnixMilli(), "end_time": end,
			})
		case r.URL.Path == "/api/serve/applications/":
			answer(w, map[string]any{"applications": map[string]any{}})
		default:
			http.NotFound(w, r)
		}
	}
	return http.ListenAndServe(listen, http.HandlerFunc(handler))
}
