"""The ways in which recording endpoints lose or double tokens, and the tests that show that ours
does not. `file::test` is below tests/, without the `test_` of the file's name. A trainer and an
endpoint that go down are in agents/test_endpoint_restart.py.

1. BPE is no bijection: pieces that no tokenizer would choose stay.
   agents/cases_by_template::test_odd_tokens_of_a_reply_stay_and_a_turn_ends_once_as_the_template_ends_it
2. The line end behind an end token is added once.
   agents/endpoint::test_a_loop_with_tool_calls_is_one_sample_of_all_that_was_sampled
3. A next role's marker that ended a reply is replaced.
   agents/endpoint::test_a_next_roles_marker_that_the_model_guessed_wrong_gives_way_to_the_right_one
4. A reply is cut off by its limit.
   agents/cases_by_template::test_a_reply_that_was_cut_off_is_closed_by_context_that_is_not_learned
5. It is cut off in a thought.
   agents/cases_by_template::test_a_reply_cut_off_in_its_thoughts_is_reasoning_and_stays_among_the_thoughts
6. Another end token, and control tokens.
   agents/cases_by_template::test_another_end_token_or_a_control_token_in_a_reply_costs_no_token
7. The template drops earlier thoughts.
   agents/cases_by_template::test_thoughts_that_the_template_drops_begin_a_sample_and_others_stay
8. The client drops or renames thoughts.
   agents/cases_by_template::test_a_call_that_comes_back_rewritten_has_the_same_prompt_as_one_that_does_not
   agents/endpoint::test_thoughts_that_a_client_drops_or_renames_are_kept_among_results
9. Arguments are written anew.
   agents/tree::test_messages_that_clients_send_back_rewritten_are_the_same
   agents/tree::test_messages_that_differ_are_not
10. Null for an empty text, other ids, fields of other packages.
   agents/endpoint::test_a_reply_sent_back_with_other_ids_spaces_and_nulls_is_the_same_node
11. A list of parts for a text.
   agents/cases_by_template::test_a_call_that_comes_back_rewritten_has_the_same_prompt_as_one_that_does_not
12. The system prompt is rewritten.
   agents/tree::test_a_rewritten_system_prompt_begins_a_conversation_that_is_still_the_agents
13. A title without tools.
   agents/tree::test_a_title_without_tools_is_auxiliary
   agents/tree::test_a_title_that_comes_first_is_auxiliary_where_all_conversations_are_paid
14. A summary replaces the history.
   agents/cases_by_template::test_a_summary_in_place_of_the_history_begins_a_conversation_and_all_is_learned_once
15. Sub-agents interleave.
   agents/tree::test_conversations_of_sub_agents_that_interleave_stay_whole
16. A client tries again.
   agents/endpoint::test_a_retry_joins_a_call_that_still_runs_and_replays_one_that_was_answered
   agents/endpoint::test_a_retry_without_a_header_joins_a_call_whose_client_is_gone
17. Equal prompts: an abandoned first call, and several replies wanted.
   agents/tree::test_a_whole_reply_that_nobody_took_is_abandoned_and_equal_ones_that_were_taken_are_kept
   agents/endpoint::test_several_replies_to_one_prompt_are_all_learned
18. The client is gone, or the rollout over, during a call.
   agents/endpoint::test_a_client_that_is_gone_for_good_frees_the_engine_and_its_tokens_are_counted
   agents/endpoint::test_a_rollout_that_ends_while_it_samples_is_sealed
19. A failed call leaves nothing behind.
   agents/endpoint::test_a_call_that_the_machine_failed_leaves_no_node_and_a_retry_makes_it_good
20. A stream.
   agents/cases_by_template::test_a_stream_has_the_calls_of_the_whole_answer
   agents/endpoint::test_a_stream_is_the_whole_answer_in_events
21. The agent's own sampling settings.
   agents/endpoint::test_the_runs_sampling_wins_over_the_requests
22. Stop strings.
   agents/cases_by_template::test_a_stop_string_cuts_what_is_shown_and_no_token_and_begins_a_sample
23. Log-probabilities that are shifted, raw or no numbers.
   agents/endpoint::test_ids_and_log_probabilities_come_back_place_by_place
   endpoint_check::test_numbers_that_are_shifted_by_one_are_refused
   endpoint_check::test_raw_log_probabilities_are_refused
24. The budget is spent.
   agents/cases_by_template::test_a_spent_budget_is_a_text_that_is_no_reply_of_the_policy
   agents/endpoint::test_a_budget_that_is_used_up_gets_a_polite_answer_that_is_not_recorded
25. The weights change between and within calls.
   agents/real_engine::test_the_learner_gets_what_the_engine_sampled_over_a_change_of_the_weights
26. Questions before the work, other tools, unknown and broken calls.
   agents/endpoint::test_questions_before_the_work_leave_the_rollout_whole
   agents/endpoint::test_other_tools_on_a_later_call_render_the_prompt_anew
   agents/endpoint::test_a_call_of_an_unknown_tool_reaches_the_agent_and_no_calls_without_them
   agents/cases_by_template::test_a_broken_call_is_text_and_learned_whether_the_agent_keeps_or_drops_it
"""

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
NAMED = re.compile(r"^   ([\w/]+)::(test_\w+)$", re.MULTILINE)


def test_each_of_the_26_cases_names_tests_that_exist() -> None:
    cases = re.split(r"^\d+\. ", __doc__ or "", flags=re.MULTILINE)[1:]
    assert [*map(int, re.findall(r"^(\d+)\. ", __doc__ or "", re.MULTILINE))] == [*range(1, 27)]
    for case in cases:
        named = NAMED.findall(case)
        assert len(named) == case.count("::") > 0, case
        for file, name in named:
            folder, _, stem = file.rpartition("/")
            text = (TESTS / folder / f"test_{stem}.py").read_text()
            assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), (file, name)
