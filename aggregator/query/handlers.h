// SPDX-License-Identifier: Apache-2.0
//
// The handlers of the Query service, one file each; query_run.h says what they have in common.
#ifndef AGGREGATOR_QUERY_HANDLERS_H_
#define AGGREGATOR_QUERY_HANDLERS_H_

#include "absl/status/status.h"
#include "aggregator/query/query_run.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

absl::Status ListHosts(QueryRun& run, const v1::ListHostsRequest& request,
                       v1::ListHostsResponse* response);
absl::Status Top(QueryRun& run, const v1::TopRequest& request, v1::TopResponse* response);
absl::Status GetIntent(QueryRun& run, const v1::GetIntentRequest& request,
                       v1::GetIntentResponse* response);
absl::Status SearchIntents(QueryRun& run, const v1::SearchIntentsRequest& request,
                           v1::SearchIntentsResponse* response);
absl::Status Series(QueryRun& run, const v1::SeriesRequest& request, v1::SeriesResponse* response);
absl::Status CompareHosts(QueryRun& run, const v1::CompareHostsRequest& request,
                          v1::CompareHostsResponse* response);
absl::Status Coverage(QueryRun& run, const v1::CoverageRequest& request,
                      v1::CoverageResponse* response);
absl::Status Tags(QueryRun& run, const v1::TagsRequest& request, v1::TagsResponse* response);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_HANDLERS_H_
